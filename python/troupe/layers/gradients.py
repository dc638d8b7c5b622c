"""Gradients in flat 32-bit buffers, which hosts may share with a worker: a parameter's .grad is its part of one."""

import torch

from troupe.layers.boundary import dense
from troupe.errors import LayerError, ProgramError

_cpu_piece, _piece = 1 << 17, 1 << 22  # numbers whose squares are summed at once; a CPU's copy stays in its cache


class Gradients:
    """Those of `own` and `tied` parameters, each a list of (layer, name, parameter). twin: the tied parameter of a model's last
    layer where the first one's is here, too; its gradient is added to the other by fold().

    Of 32-bit parameters .grad is a part of a buffer. 16-bit and complex ones have gradients of their own type, which are added
    there after each backward. 64-bit ones keep theirs in 64 bits; the buffers have them in 32 for other hosts, and what comes
    back counts only where it is a sum: if `summed` (with several pipelines), and of a parameter that two stages share.
    """

    def __init__(self, own, tied, twin, device, summed=False):
        self._own, self._tied, self._twin, self._device, self._summed = own, tied, twin, device, summed
        self.own_parameters = sum(_numbers(p) for _, _, p in own)
        self.tied_parameters = sum(_numbers(p) for _, _, p in tied)
        self._out = ""  # what hosts may still write: all, tied or nothing

    def start(self, own, tied):
        self._hosts = [self._host("own", own, self.own_parameters), self._host("tied", tied, self.tied_parameters)]
        self.flats = self._hosts if _on_host(self._device) else [torch.zeros_like(x, device=self._device) for x in self._hosts]
        twins = [(0, "", self._twin)] if self._twin is not None else []
        self._second = torch.zeros(sum(_numbers(p) for _, _, p in twins), device=self._device)
        self._views = [view for found, flat in zip((self._own, self._tied, twins), (*self.flats, self._second))
                       for view in _views(found, flat)]
        self._narrow = [x for x in self._views if not _is_shared(x[2]) and not _is_wide(x[2])]
        self._wide = [(*x, torch.zeros_like(x[2])) for x in self._views if _is_wide(x[2])]
        self.zero()

    def after_backward(self):
        for layer, name, p, view in self._narrow:
            if p.grad is not None:
                _blamed(layer, name, lambda: view.add_(_real(p.grad)))
                p.grad = None

    def fold(self):
        """Adds the second gradient of a parameter that is tied within this stage."""
        if self._twin is None:
            return
        self.flats[1].add_(self._second)
        self._second.zero_()
        if _is_wide(self._twin):
            first, second = self._wide[-2][4], self._wide[-1][4]
            first.add_(second)
            second.zero_()

    def to_hosts(self):
        self.fold()
        for _, name, p, view in self._views:
            if _is_shared(p) and p.grad is not view:
                raise ProgramError(f"the gradient of '{name}' was replaced, expected no zero_grad() in a layer")
        for _, name, p, view, wide in self._wide:
            if p.grad is not wide:
                raise ProgramError(f"the gradient of '{name}' was replaced, expected no zero_grad() in a layer")
            view.copy_(_real(wide))
        if self.flats is not self._hosts:
            for host, flat in zip(self._hosts, self.flats):
                host.copy_(flat)
        self._out = "all"
        return tuple(self._hosts)

    def from_hosts(self):
        """The sums that were written into the hosts' buffers since to_hosts(), if it was called. A second time, before
        zero(): the tied ones, which a model's last stage may get after its squared norms."""
        self.fold()
        if not self._out:
            return
        everything, self._out = self._out == "all", "tied"
        if self.flats is not self._hosts:
            for host, flat in list(zip(self._hosts, self.flats))[0 if everything else 1:]:
                flat.copy_(host)
        for layer, name, _, view, wide in self._wide:
            tied = self._tied and self._twin is None and name == self._tied[0][1]
            if tied or (everything and self._summed):
                _real(wide).copy_(view)

    def squared_norms(self, layers, dtype=torch.float64):
        """By layer, in the order of parameters, summed in pieces in `dtype`. A tied one that is of another stage's layer does
        not count."""
        size = _cpu_piece if _on_host(self._device) else _piece
        wide = {id(view): gradient for _, _, _, view, gradient in self._wide}
        owners, dots = [], []
        for layer, _, _, view in self._views:
            numbers = in_memory(_real(wide.get(id(view), view)))
            for piece in numbers.split(size) if layer in layers else ():
                piece = piece.to(dtype)
                owners.append(layer)
                dots.append(torch.dot(piece, piece))
        sums = dict.fromkeys(layers, 0.0)
        for layer, dot in zip(owners, torch.stack(dots).tolist() if dots else ()):  # waits for a GPU once
            sums[layer] += dot
        return list(sums.values())

    def multiply(self, factor):
        if factor != 1:
            for flat in (*self.flats, *(x[4] for x in self._wide)):
                flat.mul_(factor)

    def hand_out(self):
        """Before an optimizer's step."""
        for _, _, p, view in self._narrow:
            p.grad = torch.view_as_complex(view.clone()) if p.is_complex() else view.to(p.dtype)

    def zero(self):
        self._out = ""
        for flat in (*self.flats, self._second, *(x[4] for x in self._wide)):
            flat.zero_()
        for _, _, p, view in self._views:
            p.grad = view if _is_shared(p) else None
        for _, _, p, _, wide in self._wide:
            p.grad = wide

    def _host(self, what, given, count):
        if given is None:
            return torch.zeros(count)
        if given.dtype != torch.float32 or given.dim() != 1 or given.numel() != count:
            raise ValueError(f"gradients, {what}: found {given.dtype} of {list(given.shape)}, expected {count} 32-bit floats")
        return given


def _on_host(device):
    return torch.device(device).type == "cpu"


def _is_shared(p):
    return p.dtype == torch.float32


def _is_wide(p):
    return p.dtype in (torch.float64, torch.complex128)


def _numbers(p):
    return p.numel() * (2 if p.is_complex() else 1)


def _real(t):
    return torch.view_as_real(t) if t.is_complex() else t


def _views(found, flat):
    begin, views = 0, []
    for layer, name, p in found:
        part = flat[begin:begin + _numbers(p)]
        begin += len(part)
        views.append((layer, name, p, _view(part, p)))
    return views


def _view(part, p):
    if p.is_complex():
        return part.view(*p.shape, 2)
    return part.as_strided(p.shape, p.stride()) if dense(p) is p else part.view(p.shape)


def _blamed(layer, name, call):
    try:
        call()
    except Exception as error:
        raise LayerError(layer, f"gradient of '{name}'", error) from error


def in_memory(t):
    """The elements in the order in which memory has them, which a gradient shares with its parameter."""
    return t.as_strided((t.numel(),), (1,)) if dense(t) is t else t.reshape(-1)
