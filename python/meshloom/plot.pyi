from collections.abc import Sequence
from typing import Any, Optional, Union

from numpy.typing import ArrayLike

from . import Array, Cosmology

# Axes of matplotlib, which is optional.
_Axes = Any
_Values = Union[Array, ArrayLike]

def posterior(
    mean: _Values,
    std: _Values,
    truth: Optional[_Values] = None,
    *,
    size: Union[None, float, Sequence[float]] = None,
    unit: Optional[str] = None,
    label: str = "value",
    ax: _Axes = None,
) -> Any: ...
def power_spectrum(
    k: ArrayLike,
    power: ArrayLike,
    *,
    quantiles: tuple[float, float] = (0.16, 0.84),
    label: Optional[str] = None,
    unit: str = "Mpc/h",
    ax: _Axes = None,
    **style: Any,
) -> _Axes: ...
def mass_function(
    masses: ArrayLike,
    box: float,
    *,
    edges: Union[int, ArrayLike] = 12,
    models: Sequence[str] = ("sheth-tormen",),
    a: float = 1.0,
    cosmology: Optional[Cosmology] = None,
    label: str = "halos",
    ax: _Axes = None,
) -> _Axes: ...
def projected_density(
    positions: _Values,
    box: Union[float, Sequence[float]],
    *,
    cells: int = 256,
    axis: int = 2,
    weights: Optional[ArrayLike] = None,
    unit: str = "Mpc/h",
    ax: _Axes = None,
) -> _Axes: ...
def pair_counts(
    edges: ArrayLike, counts: ArrayLike, *, label: Optional[str] = None, unit: str = "Mpc/h", ax: _Axes = None
) -> _Axes: ...
def correlation_function(
    edges: ArrayLike,
    counts: ArrayLike,
    points: int,
    box: Sequence[float],
    *,
    label: Optional[str] = None,
    unit: str = "Mpc/h",
    ax: _Axes = None,
) -> _Axes: ...
