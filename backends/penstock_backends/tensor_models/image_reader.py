"""`ImageReader`: makes a row of an input of an image file, as Pillow decodes and resizes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

import numpy as np

from penstock.backend import (
    Array,
    BackendNotInstalledError,
    DataType,
    ModelConfig,
    ModelLoadError,
)
from penstock_backends.language_model.media.bounds import media_refusal
from penstock_backends.language_model.media.image_decoding import PixelBudget, opened_image
from penstock_backends.tensor_models.check import misfit
from penstock_backends.tensor_models.graph import GraphTensor
from penstock_backends.tensor_models.parameter_fields import ParameterFields, fields_of

IMAGE: Final = "penstock.image"

_FORMATS: Final = ("JPEG", "PNG", "WEBP")
_LAYOUTS: Final = ("CHW", "HWC", "HW")
_COLOURS: Final = ("RGB", "BGR", "L")
_RESAMPLE: Final = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
_FIELDS: Final = (
    "input resize crop mean std scale layout colour datatype resample upright max_pixels".split()
)

_DATATYPES: Final = [each for each in DataType if each.numpy.kind in "iuf"]

_MAX_PIXELS: Final = 89_478_485
"""Pillow's own limit; it refuses images of twice as many whatever is configured."""

_ORIENTATION: Final = 0x0112
"""The tag of EXIF that says how a camera was held."""
_UPRIGHT: Final = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
_AXES: Final[Mapping[str, Any]] = {"HW": ..., "CHW": np.newaxis, "HWC": (..., np.newaxis)}
"""Where a channel alone gets its dimension."""

_SIXTEEN_BITS: Final = ("I", "I;16", "I;16B", "I;16L", "I;16N")


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """An object of `penstock.image`; `None` is what the graph says, or nothing.

    A `resize` of one number is the length of the shorter side. Of width and height, 0 stands for
    the one in proportion.
    """

    input: str
    resize: int | tuple[int, int] | None
    crop: int | tuple[int, int] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float | None
    layout: str | None
    colour: str | None
    datatype: DataType | None
    resample: str
    upright: bool
    max_pixels: int

    @classmethod
    def all_of(cls, config: ModelConfig) -> list[ImageSettings]:
        """The images of a model; raises `ConfigError`."""
        return [cls._from_fields(fields) for fields in fields_of(config, IMAGE)]

    @classmethod
    def _from_fields(cls, fields: ParameterFields) -> ImageSettings:
        fields.check_known(_FIELDS)
        std = fields.numbers("std") or (1.0,)
        if not all(std):
            raise fields.refused("std", "numbers other than 0")
        return cls(
            input=fields.text("input"),
            resize=fields.size("resize", 0),
            crop=fields.size("crop"),
            mean=fields.numbers("mean") or (0.0,),
            std=std,
            scale=fields.number("scale"),
            layout=fields.choice("layout", _LAYOUTS),
            colour=fields.choice("colour", _COLOURS),
            datatype=fields.datatype("datatype", _DATATYPES),
            resample=fields.choice("resample", _RESAMPLE) or "bilinear",
            upright=fields.flag("upright", True),
            max_pixels=fields.whole("max_pixels", 2 * _MAX_PIXELS) or _MAX_PIXELS,
        )

    @property
    def rank(self) -> int:
        """The number of dimensions of an image."""
        return len(self.layout or "CHW")

    def reader(self, tensor: GraphTensor) -> ImageReader:
        """The reader of images for this input of the graph; raises `ModelLoadError`."""
        return ImageReader(self, tensor)


class ImageReader:
    """Reads image files for an input of a graph; for several threads.

    A value of a pixel is looked up in a table of the input's datatype: scaled, less the mean, by
    the standard deviation.
    """

    pads = False

    def __init__(self, settings: ImageSettings, tensor: GraphTensor) -> None:
        self.tensor = tensor
        self._images = _pillow()
        self._settings = settings
        if (settings.datatype or tensor.datatype) is not tensor.datatype:
            raise self._misfit("its datatype is another")
        layout = self._layout = settings.layout or _usual_layout(tensor)
        self.has_rows = len(tensor.dims) == len(layout) + 1
        if not self.has_rows and len(tensor.dims) != len(layout):
            raise self._misfit(f"layout {layout} has {len(layout)} dimensions")
        dims = dict(zip(layout, tensor.dims[-len(layout) :], strict=True))
        self._colour = settings.colour or ("L" if dims.get("C", 1) == 1 else "RGB")
        channels = 1 if self._colour == "L" else 3
        if dims.get("C", 1) not in (channels, -1):
            raise self._misfit(f"colour {self._colour} has channels: {channels}")
        self._resize, self._crop = self._sizes(dims["W"], dims["H"])
        self._table = self._values(channels)
        resampling = self._images.Resampling
        self._filter = getattr(resampling, settings.resample.upper())

    def of_request(self) -> Callable[[bytes], Array]:
        """A function that reads each file of a request; raises `InvalidRequestError`."""
        return partial(self._read, PixelBudget(self._settings.max_pixels))

    def _read(self, budget: PixelBudget, content: bytes) -> Array:
        name, most = self.tensor.name, self._settings.max_pixels
        with opened_image(content, name, _FORMATS, most) as image:
            if self._settings.upright:
                image = self._upright(image)
            size = self._size_of(image)
            budget.take(_pixels(self._crop or size), name)
            if _pixels(size) > most:  # of a long strip
                raise media_refusal(
                    name,
                    f"holds an image of {image.width} x {image.height} pixels that resizing makes"
                    f" {size[0]} x {size[1]}; at most {most} are allowed",
                )
            image = self._in_mode(image, "L" if self._colour == "L" else "RGB")
            if size != image.size:
                image = image.resize(size, self._filter)
            return self._row(np.asarray(self._cropped(image)))

    def _upright(self, image: Any) -> Any:
        try:
            turn = _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
        except Exception:  # EXIF is damaged, of which Pillow raises any kind; the image need not be
            return image
        return image.transpose(self._images.Transpose[turn]) if turn else image

    def _in_mode(self, image: Any, mode: str) -> Any:
        if image.mode in _SIXTEEN_BITS:  # which Pillow would cut off at 255
            image = self._images.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        elif image.mode == "P" and "transparency" in image.info:
            image = image.convert("RGBA")  # or Pillow warns
        return image if image.mode == mode else image.convert(mode)

    def _size_of(self, image: Any) -> tuple[int, int]:
        """Width and height that an image is resized to."""
        wide, high = image.size
        if self._resize is None:
            return wide, high
        if isinstance(self._resize, int):
            short = self._resize
            return (short, short * high // wide) if wide <= high else (short * wide // high, short)
        width, height = self._resize
        return (
            width or max(1, round(wide * height / high)),
            height or max(1, round(high * width / wide)),
        )

    def _cropped(self, image: Any) -> Any:
        if self._crop is None:
            return image
        width, height = self._crop
        left, top = round((image.width - width) / 2), round((image.height - height) / 2)
        return image.crop((left, top, left + width, top + height))

    def _row(self, pixels: Array) -> Array:
        """The values of pixels, [height, width] or [height, width, 3], in the layout."""
        if pixels.ndim == 2:
            values: Array = self._table[0][pixels][_AXES[self._layout]]
            return values
        planes = np.empty((3, *pixels.shape[:2]), self._table.dtype)
        order = (2, 1, 0) if self._colour == "BGR" else (0, 1, 2)
        for plane, table, channel in zip(planes, self._table, order, strict=True):
            np.take(table, pixels[..., channel], out=plane, mode="clip")
        return planes if self._layout == "CHW" else np.ascontiguousarray(planes.transpose(1, 2, 0))

    def _values(self, channels: int) -> Array:
        """The value of each of 256 levels, for each channel of the graph."""
        settings, datatype = self._settings, self.tensor.datatype
        for name, given in (("mean", settings.mean), ("std", settings.std)):
            if len(given) not in (1, channels):
                raise self._misfit(f"{name} has {len(given)} numbers, for channels: {channels}")
        kind = datatype.numpy.kind
        if kind not in "iuf" and datatype is not DataType.BF16:
            raise self._misfit("images are numbers")
        whole = kind in "iu" and datatype is not DataType.BF16
        scale = settings.scale if settings.scale is not None else 1.0 if whole else 1 / 255
        mean, std = (np.resize(each, (channels, 1)) for each in (settings.mean, settings.std))
        return self.tensor.cast((np.arange(256) * scale - mean) / std)

    def _sizes(
        self, wide: int, high: int
    ) -> tuple[int | tuple[int, int] | None, tuple[int, int] | None]:
        """Sizes to resize to and to crop to, for a graph of this width and height."""
        resize, crop = self._settings.resize, self._settings.crop
        fixed = max(wide, 0), max(high, 0)
        if crop is None and resize is None and any(fixed):
            resize = fixed
        elif crop is None and isinstance(resize, int) and all(fixed):
            crop = fixed
        crop = (crop, crop) if isinstance(crop, int) else crop
        made = crop or (resize if isinstance(resize, tuple) else (0, 0))
        if any(graph not in (0, own) for graph, own in zip(fixed, made, strict=True)):
            text = f"{made[0] or 'any'} x {made[1] or 'any'}"
            raise self._misfit(f"images are made {text} (width x height)")
        return resize, crop

    def _misfit(self, why: str) -> ModelLoadError:
        return misfit(IMAGE, why, self.tensor)


def _usual_layout(tensor: GraphTensor) -> str:
    """Channels last only where the graph has one or three there, and not in front."""
    front, last = tensor.dims[-3:-2], tensor.dims[-1:]
    return "HWC" if last[:1] in ((1,), (3,)) and front not in ((1,), (3,)) else "CHW"


def _pixels(size: tuple[int, int]) -> int:
    return size[0] * size[1]


def _pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise BackendNotInstalledError(
            f"'{IMAGE}' needs a package that is not installed; install it with: "
            "pip install 'penstock[images]'"
        ) from error
