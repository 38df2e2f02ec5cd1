"""Friends-of-friends groups."""

import numpy as np

from . import _native
from ._arguments import box_sides, real_number, whole_number
from ._arrays import column, native, points_array
from ._comm import agreed, given_or_not, resolve, together
from ._origin import common_origin, from_origin, to_origin


class Groups:
    """Friends-of-friends groups of points: what `fof` returns. Rows of the catalogue are groups of `min_members` points and more.

    Over several ranks, `labels` are those of this rank's points; rows and members are distributed evenly and independently of each other.

    Attributes
    ----------
    labels : ndarray of int
        For each point the least index of a point in its group: points of one group have the same.
    length : float
        The linking length as it was used.
    total : int
        Groups in the catalogue, of all ranks.
    label, count, mass : ndarray
        Of each group: the least index of its members, their number and the sum of their masses.
    center, velocity : ndarray, shape (groups, axes)
        Mean position, in the box, and mean velocity (None without velocities); weighted by mass. Positions are float64 where the points were.
    inertia_radius, velocity_dispersion, max_radius : ndarray
        Root mean square of the distances from the centre and of the velocities about the mean one, and the greatest distance.
    axes : ndarray, shape (groups, axes)
        Root-mean-square semi-axes, the largest first.
    directions : ndarray, shape (groups, axes, axes)
        Their directions, unit rows.
    offset, members : ndarray of int
        Indices of the members of group ``g`` are ``members[offset[g]:offset[g + 1]]`` (on one rank).
    """

    def __init__(self, columns, dims, origin):
        self.labels = columns["labels"]
        self.length = columns["length"]
        self.total = columns["total"]
        for name in ("label", "count", "mass", "inertia_radius", "max_radius", "velocity_dispersion", "offset", "members"):
            setattr(self, name, columns[name])
        for name in ("center", "axes", "velocity"):
            values = columns[name]
            setattr(self, name, None if values is None else values.reshape(-1, dims))
        self.center = to_origin(self.center, origin)
        self.directions = columns["directions"].reshape(-1, dims, dims)

    def __len__(self):
        return len(self.label)

    def __repr__(self):
        return f"<meshloom.Groups: {self.total} groups, linking length {self.length:g}>"


def _masses(values, shape, first):
    """Masses as contiguous float32, or None; `first` is the number of this rank's first point."""
    masses = column(values, shape, "masses", first)
    if masses is not None:
        given = np.asarray(values)
        vanished = np.flatnonzero((masses == 0) & (given != 0))
        if vanished.size:
            at = vanished[0]
            raise ValueError(f"masses has {given[at]:g} for point {first + at}, which is 0 in float32 (1.4e-45 and more); scale the data to other units")
    return masses


def _linking(linking_length, linking_parameter, sides):
    """The name of the linking length that is given, by which one knows whether it is in mean separations, and the length."""
    if (linking_length is None) == (linking_parameter is None):
        raise TypeError("give either linking_length or linking_parameter")
    name = "linking_parameter" if linking_length is None else "linking_length"
    length = real_number(linking_parameter if linking_length is None else linking_length, name)
    if not length >= 0:
        raise ValueError(f"{name} is {length}; it must be a number from 0 on")
    if name == "linking_parameter" and 0 in sides:
        raise ValueError(f"linking_parameter is in mean separations, which need a box with a side for every axis, not {sides}; give that, or linking_length")
    return name, length


def fof(
    points,
    linking_length=None,
    *,
    linking_parameter=None,
    box=None,
    masses=None,
    velocities=None,
    min_members=20,
    order="count",
    comm=None,
):
    """Friends-of-friends groups: points up to the linking length apart are friends, and a group is all friends of friends.

    Parameters
    ----------
    points : array_like, shape (N, 2) or (N, 3)
        Positions; with `comm` this rank's part of them. float32 is taken as it is; all else is wrapped into the box, or counted from among the
        points where they lie far from 0, and rounded to float32.
    linking_length : float
        The linking length, in the units of the positions.
    linking_parameter : float
        In place of it: the linking length in mean separations ``(V / N)**(1 / axes)``, which needs a box.
    box : float or sequence of float, optional
        Sides of the periodic box; 0 or None leaves an axis open.
    masses : array_like, shape (N,), optional
        Masses; 1 each unless given.
    velocities : array_like, shape of `points`, optional
        Velocities.
    min_members : int
        Smaller groups have no row in the catalogue.
    order : {"count", "mass", "label"}
        Order of the rows: most members first, heaviest first, or by label.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the points each. All ranks call it; results do not depend on their number.

    Returns
    -------
    Groups

    Raises
    ------
    ValueError
        For values that are not finite, shapes that do not fit, a length below 0.

    Examples
    --------
    >>> from meshloom import fof
    >>> groups = fof([[9.5, 1.0], [4.0, 4.0], [0.5, 1.0]], 1.5, box=10.0, min_members=2)
    >>> groups.labels.tolist(), groups.count.tolist(), groups.center.tolist()
    ([0, 1, 0], [2], [[0.0, 1.0]])
    """
    comm = resolve(comm)

    def check():
        own = points_array(comm, points)
        sides = box_sides(box, own.shape[1])
        name, length = _linking(linking_length, linking_parameter, sides)
        arguments = {
            "number of axes": own.shape[1],
            "box": sides,
            name: length,
            "min_members": whole_number(min_members, "min_members", 1),
            "order": order,
            "masses": given_or_not(masses),
            "velocities": given_or_not(velocities),
        }
        return (own, (length, name == "linking_parameter"), arguments), {"function": "fof", **arguments}, len(own)

    def find(own, counts):
        points, nearness, arguments = own
        first, sides = sum(counts[: comm.rank]), arguments["box"]
        attributes = agreed(comm, lambda: (_masses(masses, points.shape[:1], first), column(velocities, points.shape, "velocities", first)))
        origin = common_origin(comm, points, sides)
        rows = arguments["min_members"], order
        columns = _native.fof(comm, native(from_origin(points, origin)), sides, nearness, rows, attributes)
        return Groups(columns, points.shape[1], origin)

    return together(comm, check, find)
