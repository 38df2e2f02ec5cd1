"""Friends-of-friends groups."""

import numpy as np

from . import _native
from ._arguments import box_sides, real_number, whole_number
from ._arrays import column, native, points_array
from ._comm import agreed, given_or_not, resolve, together
from ._origin import common_origin, from_origin, to_origin


class Groups:
    """Friends-of-friends groups of points, the result of `fof`.

    The catalog has one row for each group of at least `min_members` points; ``len(groups)`` is the
    number of rows on this rank.

    Attributes
    ----------
    labels : ndarray of int, shape (N,)
        For each point of this rank, the least index of a point in its group.
    length : float
        Linking length that was used, in the unit of the positions.
    total : int
        Number of groups in the catalog of all ranks.
    label : ndarray of int, shape (groups,)
        Least index of a member.
    count : ndarray of int, shape (groups,)
        Number of members.
    mass : ndarray, shape (groups,)
        Sum of the masses of the members; their number if no masses were given. For particles of
        `simulate`, that number times `Cosmology.particle_mass` is the mass in Msun/h.
    center : ndarray, shape (groups, axes)
        Mean position, weighted by mass, in the box; float64 if the points were float64.
    velocity : ndarray of shape (groups, axes) or None
        Mean velocity, weighted by mass; None without velocities.
    inertia_radius : ndarray, shape (groups,)
        Root mean square distance from the center.
    velocity_dispersion : ndarray of shape (groups,) or None
        Root mean square velocity relative to the mean; None without velocities.
    max_radius : ndarray, shape (groups,)
        Greatest distance from the center.
    axes : ndarray, shape (groups, axes)
        Root-mean-square semi-axes, the largest first.
    directions : ndarray, shape (groups, axes, axes)
        Directions of the semi-axes, one unit vector per row.
    offset, members : ndarray of int
        On one rank, ``members[offset[g]:offset[g + 1]]`` are the indices of the members of group
        ``g``.

    Notes
    -----
    On several ranks, rows and members are distributed evenly and independently of each other.

    Examples
    --------
    >>> from meshloom import fof
    >>> fof([[0.5, 1.0], [4.0, 4.0], [0.6, 1.0]], 0.5, min_members=2)
    <meshloom.Groups: 1 groups, linking length 0.5>
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
    """Return masses as contiguous float32, or None; `first` is the number of the first point."""
    masses = column(values, shape, "masses", first)
    if masses is not None:
        given = np.asarray(values)
        vanished = np.flatnonzero((masses == 0) & (given != 0))
        if vanished.size:
            at = vanished[0]
            raise ValueError(f"masses: expected values of at least 1.4e-45 (float32), got {given[at]:g} for point {first + at}; scale the data to other units")
    return masses


def _linking(linking_length, linking_parameter, sides):
    """Return the name of the given linking argument and its value."""
    if (linking_length is None) == (linking_parameter is None):
        raise TypeError("expected either linking_length or linking_parameter, not both or none")
    name = "linking_parameter" if linking_length is None else "linking_length"
    length = real_number(linking_parameter if linking_length is None else linking_length, name)
    if not length >= 0:
        raise ValueError(f"{name}: expected 0 or more, got {length}")
    if name == "linking_parameter" and 0 in sides:
        raise ValueError(f"linking_parameter: expected a box that is periodic along every axis, got sides {sides}; pass box or linking_length")
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
    """Find friends-of-friends groups.

    Points up to the linking length apart are friends; a group has all friends of its friends.

    Parameters
    ----------
    points : array_like or meshloom.Array, shape (N, 2) or (N, 3)
        Positions, in the unit of the caller; with `comm`, the part of this rank. float32 is used as
        given. Other types are rounded to float32 after wrapping into the box, or after subtracting
        an origin if the points are far from 0.
    linking_length : float, optional
        Linking length in the unit of the positions, 0 or more.
    linking_parameter : float, optional
        Linking length in units of the mean separation ``(V / N)**(1 / axes)``; needs a periodic
        box. Give either this or `linking_length`.
    box : float or sequence of float, optional
        Side lengths of the periodic box; 0 or None leaves an axis open. Default: open.
    masses : array_like, shape (N,), optional
        Masses; 1 each by default.
    velocities : array_like, shape of `points`, optional
        Velocities in any unit.
    min_members : int, default 20
        Least number of members of a group in the catalog, 1 or more.
    order : {"count", "mass", "label"}, default "count"
        Order of the rows: most members first, heaviest first, or by label.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the points each. Default: this process alone.

    Returns
    -------
    Groups

    Raises
    ------
    ValueError
        If a value is not finite, shapes do not fit, or the linking length is negative.
    TypeError
        If not exactly one of `linking_length` and `linking_parameter` is given.

    Warns
    -----
    UserWarning
        If the points and the box seem to have different units.

    Notes
    -----
    Collective with `comm`. Results have the same bits on any number of ranks.

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
