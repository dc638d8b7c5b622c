"""Gradients in flat 32-bit buffers, which hosts may share with a worker: a parameter's .grad is its part of one."""

import torch

from troupe.boundary import dense
from troupe.errors import ProgramError

_cpu_piece, _piece = 1 << 17, 1 << 22  # numbers whose squares are summed at once; a CPU's copy stays in its cache


class Gradients:
    """Those of `own` and `tied` parameters, each a list of (layer, name, parameter). twin: the tied parameter of a model's last
    layer where the first one's is here, too; its gradient is added to the other by fold().

    Parameters that are not 32-bit have gradients of their own type, which are added here after each backward.
    """

    def __init__(self, own, tied, twin, device):
        self._own, self._tied, self._twin, self._device = own, tied, twin, device
        self.own_parameters = sum(p.numel() for _, _, p in own)
        self.tied_parameters = sum(p.numel() for _, _, p in tied)
        self._gradients_are_out = False

    def start(self, own, tied):
        self._hosts = [self._host("own", own, self.own_parameters), self._host("tied", tied, self.tied_parameters)]
        self.flats = self._hosts if _on_host(self._device) else [torch.zeros_like(x, device=self._device) for x in self._hosts]
        twins = [(0, "", self._twin)] if self._twin is not None else []
        self._second = torch.zeros(sum(p.numel() for _, _, p in twins), device=self._device)
        self._views = [view for found, flat in zip((self._own, self._tied, twins), (*self.flats, self._second))
                       for view in _views(found, flat)]
        self._others = [x for x in self._views if x[2].dtype != torch.float32]
        self.zero()

    def after_backward(self):
        for _, _, p, view in self._others:
            if p.grad is not None:
                view.add_(p.grad)
                p.grad = None

    def fold(self):
        """Adds the second gradient of a parameter that is tied within this stage."""
        if self._twin is not None:
            self.flats[1].add_(self._second)
            self._second.zero_()

    def to_hosts(self):
        self.fold()
        for _, name, p, view in self._views:
            if p.dtype == torch.float32 and p.grad is not view:
                raise ProgramError(f"the gradient of '{name}' was replaced, expected no zero_grad() in a layer")
        if self.flats is not self._hosts:
            for host, flat in zip(self._hosts, self.flats):
                host.copy_(flat)
            self._gradients_are_out = True
        return tuple(self._hosts)

    def from_hosts(self):
        """The sums that were written into the hosts' buffers since to_hosts(), if it was called."""
        self.fold()
        if self._gradients_are_out:
            for host, flat in zip(self._hosts, self.flats):
                flat.copy_(host)
            self._gradients_are_out = False

    def squared_norms(self, layers, dtype=torch.float64):
        """By layer, in the order of parameters, summed in pieces in `dtype`. A tied one that is of another stage's layer does
        not count."""
        size = _cpu_piece if _on_host(self._device) else _piece
        owners, dots = [], []
        for layer, _, _, view in self._views:
            for piece in in_memory(view).split(size) if layer in layers else ():
                numbers = piece.to(dtype)
                owners.append(layer)
                dots.append(torch.dot(numbers, numbers))
        sums = dict.fromkeys(layers, 0.0)
        for layer, dot in zip(owners, torch.stack(dots).tolist() if dots else ()):  # waits for a GPU once
            sums[layer] += dot
        return list(sums.values())

    def multiply(self, factor):
        if factor != 1:
            for flat in self.flats:
                flat.mul_(factor)

    def hand_out(self):
        """Before an optimizer's step."""
        for _, _, p, view in self._others:
            p.grad = view.to(p.dtype)

    def zero(self):
        for flat in (*self.flats, self._second):
            flat.zero_()
        for _, _, p, view in self._views:
            p.grad = view if p.dtype == torch.float32 else None

    def _host(self, what, given, count):
        if given is None:
            return torch.zeros(count)
        if given.dtype != torch.float32 or given.dim() != 1 or given.numel() != count:
            raise ValueError(f"gradients, {what}: found {given.dtype} of {list(given.shape)}, expected {count} 32-bit floats")
        return given


def _on_host(device):
    return torch.device(device).type == "cpu"


def _views(found, flat):
    begin, views = 0, []
    for layer, name, p in found:
        part = flat[begin:begin + p.numel()]
        views.append((layer, name, p, part.as_strided(p.shape, p.stride()) if dense(p) is p else part.view(p.shape)))
        begin += p.numel()
    return views


def in_memory(t):
    """The elements in the order in which memory has them, which a gradient shares with its parameter."""
    return t.as_strided((t.numel(),), (1,)) if dense(t) is t else t.reshape(-1)
