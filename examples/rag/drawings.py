"""Drawings of things that Python's library is about: what the image tower was trained on.

    python -m examples.rag.drawings clock clock.png [SEED]

Each is drawn in other colours, another size, place and width of lines, whenever it is drawn.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi, sin
from pathlib import Path

from PIL import Image, ImageDraw

SIZE = 96
"""Pixels of a side."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Pen:
    """Draws on a square from -1 to 1, turned a little and moved somewhere on the picture."""

    draw: ImageDraw.ImageDraw
    colour: tuple[int, int, int]
    width: int
    centre: Point
    scale: float
    angle: float

    def at(self, x: float, y: float) -> Point:
        turned_x = x * cos(self.angle) - y * sin(self.angle)
        turned_y = x * sin(self.angle) + y * cos(self.angle)
        return self.centre[0] + turned_x * self.scale, self.centre[1] + turned_y * self.scale

    def line(self, *points: Point) -> None:
        self.draw.line([self.at(*point) for point in points], self.colour, self.width, "curve")

    def shape(self, *points: Point) -> None:
        self.line(*points, points[0])

    def arc(self, x: float, y: float, wide: float, high: float, start: float, end: float) -> None:
        """Part of an ellipse, in degrees from the right and downwards."""
        steps = [start + (end - start) * step / 24 for step in range(25)]
        self.line(*((x + wide * cos(a * pi / 180), y + high * sin(a * pi / 180)) for a in steps))

    def dot(self, x: float, y: float, radius: float = 0.13) -> None:
        (a, b), r = self.at(x, y), radius * self.scale
        self.draw.ellipse((a - r, b - r, a + r, b + r), self.colour)


def _file(pen: _Pen) -> None:
    pen.shape((-0.65, -0.9), (0.3, -0.9), (0.7, -0.5), (0.7, 0.9), (-0.65, 0.9))
    pen.line((0.3, -0.9), (0.3, -0.5), (0.7, -0.5))
    for height in (-0.1, 0.2, 0.5):
        pen.line((-0.4, height), (0.45, height))


def _folder(pen: _Pen) -> None:
    pen.shape((-0.9, -0.6), (-0.3, -0.6), (-0.1, -0.35), (0.9, -0.35), (0.9, 0.7), (-0.9, 0.7))
    pen.line((-0.9, -0.15), (0.9, -0.15))


def _clock(pen: _Pen) -> None:
    pen.arc(0, 0, 0.9, 0.9, 0, 360)
    pen.line((0, -0.6), (0, 0), (0.45, 0.2))


def _padlock(pen: _Pen) -> None:
    pen.shape((-0.7, -0.1), (0.7, -0.1), (0.7, 0.9), (-0.7, 0.9))
    pen.arc(0, -0.1, 0.45, 0.75, 180, 360)
    pen.dot(0, 0.3)
    pen.line((0, 0.3), (0, 0.65))


def _envelope(pen: _Pen) -> None:
    pen.shape((-0.95, -0.6), (0.95, -0.6), (0.95, 0.6), (-0.95, 0.6))
    pen.line((-0.95, -0.6), (0, 0.15), (0.95, -0.6))


def _die(pen: _Pen) -> None:
    pen.shape((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8))
    for x, y in ((-0.4, -0.4), (0.4, -0.4), (0, 0), (-0.4, 0.4), (0.4, 0.4)):
        pen.dot(x, y)


def _tree(pen: _Pen) -> None:
    for x, y, above in ((-0.5, 0, (0, -0.8)), (0.5, 0, (0, -0.8)), (-0.8, 0.8, (-0.5, 0))):
        pen.line(above, (x, y))
    pen.line((-0.5, 0), (-0.2, 0.8))
    pen.line((0.5, 0), (0.8, 0.8))
    for x, y in ((0, -0.8), (-0.5, 0), (0.5, 0), (-0.8, 0.8), (-0.2, 0.8), (0.8, 0.8)):
        pen.dot(x, y, 0.17)


def _database(pen: _Pen) -> None:
    pen.arc(0, -0.65, 0.75, 0.28, 0, 360)
    for height in (-0.15, 0.3, 0.75):
        pen.arc(0, height, 0.75, 0.28, 0, 180)
    pen.line((-0.75, -0.65), (-0.75, 0.75))
    pen.line((0.75, -0.65), (0.75, 0.75))


def _globe(pen: _Pen) -> None:
    pen.arc(0, 0, 0.9, 0.9, 0, 360)
    pen.arc(0, 0, 0.4, 0.9, 0, 360)
    pen.line((-0.9, 0), (0.9, 0))
    pen.line((-0.75, -0.5), (0.75, -0.5))
    pen.line((-0.75, 0.5), (0.75, 0.5))


def _loop(pen: _Pen) -> None:
    pen.arc(0, 0, 0.8, 0.8, 20, 320)
    pen.line((0.25, -0.75), (0.62, -0.5), (0.7, -0.95))


THINGS: dict[str, tuple[Callable[[_Pen], None], str]] = {
    "file": (_file, "a text file that is opened, read and written"),
    "folder": (_folder, "a directory, a folder with files and paths"),
    "clock": (_clock, "a clock, the time of day and dates"),
    "padlock": (_padlock, "a lock that one thread holds while others wait"),
    "envelope": (_envelope, "an email message in an envelope"),
    "die": (_die, "a die, random numbers and chance"),
    "tree": (_tree, "a tree of nodes with children, as of XML or of syntax"),
    "database": (_database, "a database with tables and SQL queries"),
    "globe": (_globe, "the web, a URL and HTTP requests"),
    "loop": (_loop, "a loop that repeats its body"),
}
"""How each thing is drawn, and what is said of it."""


def drawn(thing: str, chance: random.Random) -> Image.Image:
    """A picture of a thing."""
    back = tuple(chance.randrange(160, 256) for _ in range(3))
    colour = (chance.randrange(110), chance.randrange(110), chance.randrange(110))
    if chance.random() < 0.3:
        back, colour = colour, (back[0], back[1], back[2])
    image = Image.new("RGB", (SIZE, SIZE), (back[0], back[1], back[2]))
    scale = SIZE * chance.uniform(0.26, 0.44)
    free = SIZE / 2 - scale
    centre = tuple(SIZE / 2 + chance.uniform(-free, free) for _ in range(2))
    width, angle = chance.randint(2, 6), chance.uniform(-0.25, 0.25)
    pen = _Pen(ImageDraw.Draw(image), colour, width, (centre[0], centre[1]), scale, angle)
    THINGS[thing][0](pen)
    return image


if __name__ == "__main__":
    _, wanted, path, *seed = sys.argv
    drawn(wanted, random.Random(int(*seed or ["0"]))).save(Path(path))
