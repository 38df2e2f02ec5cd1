"""Order of points along a space-filling curve."""

from . import _native
from ._arguments import box_sides
from ._arrays import native, points_array
from ._comm import resolve, together
from ._origin import common_origin, from_origin


def sort(points, *, box=None, curve="morton", comm=None):
    """Order points along a space-filling curve, which places neighbors close to each other.

    Parameters
    ----------
    points : array_like or meshloom.Array, shape (N, 2) or (N, 3)
        Positions, in the unit of the caller; with `comm`, the part of this rank.
    box : float or sequence of float, optional
        Side lengths of the periodic box, which the curve fills. Along an open axis (0 or None) the
        curve fills the extent of the points. Default: open.
    curve : {"morton", "hilbert"}, default "morton"
        Morton (Z-order) or Hilbert curve.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the points each. Default: this process alone.

    Returns
    -------
    ndarray of int, shape (N,)
        Element ``i`` is the index of the ``i``-th point along the curve. Points in one cell of the
        curve keep their order. On several ranks, the part of this rank (``numpy.array_split``) of
        the order of all points.

    Raises
    ------
    ValueError
        If a coordinate is not finite, the shape of `points` is invalid, or `curve` is unknown.

    Warns
    -----
    UserWarning
        If the points and the box seem to have different units.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> from meshloom import sort
    >>> sort([[0.9, 0.1], [0.1, 0.9], [0.1, 0.1], [0.9, 0.9]], box=1.0).tolist()
    [2, 0, 1, 3]
    """
    comm = resolve(comm)

    def check():
        own = points_array(comm, points)
        arguments = {"number of axes": own.shape[1], "box": box_sides(box, own.shape[1]), "curve": curve}
        return (own, arguments["box"]), {"function": "sort", **arguments}, None

    def order(own, _):
        points, sides = own
        return _native.sort(comm, native(from_origin(points, common_origin(comm, points, sides))), sides, curve)

    return together(comm, check, order)
