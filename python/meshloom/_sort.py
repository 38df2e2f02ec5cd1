"""Points along a curve."""

from . import _native
from ._arguments import box_sides
from ._arrays import native, points_array
from ._comm import resolve, together
from ._origin import common_origin, from_origin


def sort(points, *, box=None, curve="morton", comm=None):
    """The order of points along a space-filling curve, on which neighbours in space stand close to each other.

    Parameters
    ----------
    points : array_like, shape (N, 2) or (N, 3)
        Positions; with `comm` this rank's part of them.
    box : float or sequence of float, optional
        Sides of the periodic box, which the curve fills; along an open axis (0 or None) it fills what the points cover.
    curve : {"morton", "hilbert"}
        The Z-order curve or Hilbert's.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the points each. All ranks call it.

    Returns
    -------
    ndarray of int
        Element ``i`` is the index of the ``i``-th point along the curve; points in one cell of it keep their order. With several ranks this
        rank's part (``numpy.array_split``) of the order of all points.

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
