"""Cuts the lines of text out of an image: upright boxes around what the detector has found.

Lines that are turned are not turned back; the package's own program does that with OpenCV.
"""

import io

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image, ImageOps

LIKELY = 0.3
"""From here on a point is part of a line."""
LEAST = 6
"""Points of the map that a line is high and wide."""
GROWN = 0.4
"""Margin that the map leaves away of a line at each side, as a part of its height."""
HEIGHT, NARROWEST, WIDEST = 48, 320, 1920
"""Pixels of what the recogniser reads; all of a picture are as wide as the widest."""


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        file = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().ravel()[0]
        found = pb_utils.get_input_tensor_by_name(request, "MAP").as_numpy().reshape(640, 960)
        with Image.open(io.BytesIO(file)) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
        across, down = image.width / found.shape[1], image.height / found.shape[0]
        boxes = [np.multiply(box, (across, down, across, down)) for box in lines(found)]
        boxes = boxes or [np.zeros(4)]  # a batch has a row at least: an empty line is read as none
        tensors = {
            "CROPS": cut(image, boxes),
            "BOXES": np.array(boxes, np.float32).reshape(-1, 4),
        }
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, array) for name, array in tensors.items()]
        )


def lines(found):
    """The boxes (left, top, right, bottom) of connected points, from top to bottom."""
    left_over = {(int(y), int(x)) for y, x in np.argwhere(found > LIKELY)}
    boxes = []
    while left_over:
        waiting = [left_over.pop()]
        top, left = bottom, right = waiting[0]
        while waiting:
            y, x = waiting.pop()
            top, bottom, left, right = min(top, y), max(bottom, y), min(left, x), max(right, x)
            near = {(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)} & left_over
            left_over -= near
            waiting += near
        if min(right - left, bottom - top) >= LEAST:
            more = GROWN * (bottom - top)
            boxes.append((left - more, top - more, right + more, bottom + more))
    return sorted(boxes, key=lambda box: (box[1], box[0]))


def cut(image, boxes):
    """The parts of the image, of one height, BGR from -1 to 1; grey is what is beside them."""
    sizes = [HEIGHT * (box[2] - box[0]) / max(box[3] - box[1], 1) for box in boxes]
    width = int(min(max([NARROWEST, *sizes]), WIDEST))
    crops = np.zeros((len(boxes), 3, HEIGHT, width), np.float32)
    for row, (box, size) in enumerate(zip(boxes, sizes, strict=True)):
        wide = max(1, min(int(size), width))
        part = image.resize((wide, HEIGHT), Image.Resampling.BILINEAR, tuple(bounded(box, image)))
        pixels = np.asarray(part, np.float32)[:, :, ::-1].transpose(2, 0, 1)
        crops[row, :, :, :wide] = pixels / 127.5 - 1
    return crops


def bounded(box, image):
    return np.clip(box, 0, (image.width, image.height, image.width, image.height)).tolist()
