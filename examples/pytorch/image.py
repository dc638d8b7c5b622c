"""A convolutional network with batch norm, in stages, on images that are drawn from their number: rings and squares.

    python3 -m troupe.plain examples/pytorch/image.py --global-batch 32 --microbatches 4
"""

import torch
import troupe
from torch import nn


class Residual(nn.Module):
    """Two convolutions beside the identity, or beside a strided one where the image shrinks."""

    def __init__(self, before, channels):
        super().__init__()
        stride = 1 if before == channels else 2
        self.body = nn.Sequential(
            nn.Conv2d(before, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels))
        self.beside = nn.Identity() if stride == 1 else nn.Conv2d(before, channels, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.beside(x))


class Classifier(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.linear = nn.Linear(channels, classes)

    def forward(self, x):
        return self.linear(x.mean((2, 3)))


def model(width=16):
    return [
        troupe.Layer(nn.Conv2d, 1, width, 3, padding=1, bias=False),
        troupe.Layer(nn.BatchNorm2d, width),
        troupe.Layer(nn.ReLU, inplace=True),
        troupe.Layer(Residual, width, width),
        troupe.Layer(Residual, width, 2 * width),
        troupe.Layer(Residual, 2 * width, 2 * width),
        troupe.Layer(Classifier, 2 * width, 2),
    ]


loss = nn.functional.cross_entropy


class Shapes:
    """A ring or a square of 24 x 24 pixels, with noise. Each is a function of its number alone."""

    def __init__(self, first, count):
        self.first, self.count = first, count
        self.y, self.x = torch.meshgrid(torch.arange(24.0), torch.arange(24.0), indexing="ij")

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        draw = torch.Generator().manual_seed(self.first + i)
        x, y, size = (torch.rand(3, generator=draw) * torch.tensor([8, 8, 4]) + torch.tensor([8, 8, 4])).tolist()
        kind = int(torch.randint(2, (), generator=draw))
        dx, dy = (self.x - x).abs(), (self.y - y).abs()
        distance = (dx * dx + dy * dy).sqrt() if kind == 0 else torch.maximum(dx, dy)
        image = ((distance - size).abs() < 1).float() + torch.randn(24, 24, generator=draw) / 4
        return image[None], kind


def dataset(split="train"):
    return Shapes(0, 4096) if split == "train" else Shapes(4096, 512)


def optimizer(parameters, rate=0.05):
    return torch.optim.SGD(troupe.no_decay(parameters, 1e-4), lr=rate, momentum=0.9, nesterov=True)
