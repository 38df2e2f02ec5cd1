"""Reductions of device arrays along axes."""

import math

import numpy as np

from ._indexing import axis_number, axis_numbers

# The most whole numbers from 0 on that float32 has.
_EXACT = 1 << 24


class Reductions:
    """Methods of an array that join its elements."""

    def _reduced(self, name, axis, keepdims, identity=None):
        axes = axis_numbers(axis, self.ndim)
        kept = tuple(n for at, n in enumerate(self.shape) if at not in axes)
        shape = tuple(1 if at in axes else n for at, n in enumerate(self.shape)) if keepdims else kept
        if 0 in [self.shape[at] for at in axes]:
            if identity is None:
                raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
            found = self._new(kept, self.dtype)
            found[...] = identity
        elif not axes:
            found = self.copy()
        else:
            found = self._owning(self._lent().reduced(name, [at in axes for at in range(self.ndim)]), self.dtype)
        return found.reshape(shape)

    def sum(self, axis=None, keepdims=False):
        """Add elements along axes.

        Parameters
        ----------
        axis : int or tuple of int, optional
            Axes. Default: all.
        keepdims : bool, optional
            Whether these axes stay, with length 1.

        Returns
        -------
        Array
            Without axes by default: ``float(a.sum())`` is the number. It is the sum of the array of
            this rank.

        Notes
        -----
        Booleans count as float32, and more than 2^24 of them as float64. float32 and complex64 are
        added with their rounding errors, so that the result is nearly the exact sum, rounded.
        float64 and complex128 are added in a tree of sums of up to 256.

        Examples
        --------
        >>> import numpy as np, meshloom
        >>> a = meshloom.asarray(np.arange(6.0).reshape(2, 3))
        >>> float(a.sum()), a.sum(axis=0).tolist()
        (15.0, [3.0, 5.0, 7.0])
        """
        # float32 does not have all larger counts.
        many = self.dtype.kind == "b" and self._count(axis) > _EXACT
        numbers = self.astype(np.float64) if many else self._numbers()
        return numbers._reduced("sum", axis, keepdims, 0.0)

    def prod(self, axis=None, keepdims=False):
        """Multiply elements along axes.

        Parameters
        ----------
        axis : int or tuple of int, optional
            Axes. Default: all.
        keepdims : bool, optional
            Whether these axes stay, with length 1.

        Returns
        -------
        Array
            Without axes by default: ``float(a.prod())`` is the number.
        """
        return self._numbers()._reduced("prod", axis, keepdims, 1.0)

    def any(self, axis=None, keepdims=False):
        """Return whether an element along axes is not 0.

        Parameters
        ----------
        axis : int or tuple of int, optional
            Axes. Default: all.
        keepdims : bool, optional
            Whether these axes stay, with length 1.

        Returns
        -------
        Array
            Of booleans. Without axes by default: ``bool(a.any())``.

        Examples
        --------
        >>> import meshloom
        >>> a = meshloom.asarray([[1.0, 2.0], [3.0, 4.0]])
        >>> bool((a > 3).any()), (a > 3).all(axis=1).tolist()
        (True, [False, False])
        """
        return self.astype(bool, copy=False)._reduced("max", axis, keepdims, False)

    def all(self, axis=None, keepdims=False):
        """Return whether all elements along axes are not 0.

        Parameters
        ----------
        axis : int or tuple of int, optional
            Axes. Default: all.
        keepdims : bool, optional
            Whether these axes stay, with length 1.

        Returns
        -------
        Array
            Of booleans. Without axes by default: ``bool(a.all())``.
        """
        return self.astype(bool, copy=False)._reduced("min", axis, keepdims, True)

    def _extreme(self, name, axis, keepdims):
        if self.dtype.kind == "c":
            raise TypeError(f"{name}: complex numbers have no order; use abs(a) or a.real")
        return self._reduced(name, axis, keepdims)

    def min(self, axis=None, keepdims=False):
        """Return the least elements along axes, NaN where there is one.

        Parameters
        ----------
        axis : int or tuple of int, optional
            Axes. Default: all.
        keepdims : bool, optional
            Whether these axes stay, with length 1.

        Returns
        -------
        Array
            Without axes by default: ``float(..)`` of it is the number.

        Raises
        ------
        TypeError
            For complex numbers.
        ValueError
            For axes without elements.
        """
        return self._extreme("min", axis, keepdims)

    def max(self, axis=None, keepdims=False):
        """Return the greatest elements along axes, NaN where there is one.

        Parameters
        ----------
        axis : int or tuple of int, optional
            Axes. Default: all.
        keepdims : bool, optional
            Whether these axes stay, with length 1.

        Returns
        -------
        Array
            Without axes by default: ``float(..)`` of it is the number.

        Raises
        ------
        TypeError
            For complex numbers.
        ValueError
            For axes without elements.
        """
        return self._extreme("max", axis, keepdims)

    def argmin(self, axis=None):
        """Return the index of the least element along an axis, of the first NaN where there is one.

        Parameters
        ----------
        axis : int, optional
            Axis of at most 2^24 elements. Default: the flat array.

        Returns
        -------
        int or ndarray of int64
            In host memory, as indices are: waits for the device. The first of equal elements.

        Raises
        ------
        TypeError
            For complex numbers.
        ValueError
            For no elements, or too many along the axis.

        Examples
        --------
        >>> import meshloom
        >>> a = meshloom.asarray([[1.0, 2.0], [4.0, 3.0]])
        >>> a.argmax(), a.argmin(axis=1).tolist()
        (2, [0, 1])
        """
        return self._place("min", axis)

    def argmax(self, axis=None):
        """Return the index of the greatest element along an axis, as `argmin`.

        Parameters
        ----------
        axis : int, optional
            Axis of at most 2^24 elements. Default: the flat array.

        Returns
        -------
        int or ndarray of int64
        """
        return self._place("max", axis)

    def _place(self, name, axis):
        if axis is None:
            flat = self.ravel()
            starts = range(0, max(flat.size, 1), _EXACT)
            parts = [flat[start : start + _EXACT] if len(starts) > 1 else flat for start in starts]
            ends = np.array([getattr(part, name)().item() for part in parts])
            first = int(getattr(np, f"arg{name}")(ends))
            return starts[first] + int(parts[first]._place(name, 0))
        axis = axis_number(axis, self.ndim)
        length = self.shape[axis]
        if length > _EXACT:
            raise ValueError(f"arg{name}: expected at most 2^24 elements along axis {axis}, got {length}; use numpy.asarray(a), or the flat array")
        end = getattr(self, name)(axis=axis, keepdims=True)
        numbers = np.arange(length, dtype=np.float32).reshape((-1,) + (1,) * (self.ndim - 1 - axis))
        return np.where((self == end) | np.isnan(self), numbers, np.inf).min(axis=axis).numpy().astype(np.int64)

    def _count(self, axis):
        return math.prod(self.shape[at] for at in axis_numbers(axis, self.ndim))

    def mean(self, axis=None, keepdims=False):
        """Return the mean along axes.

        Parameters
        ----------
        axis : int or tuple of int, optional
            Axes. Default: all.
        keepdims : bool, optional
            Whether these axes stay, with length 1.

        Returns
        -------
        Array
            Without axes by default: ``float(..)`` of it is the number.
        """
        return self.sum(axis, keepdims) / float(self._count(axis))

    def var(self, axis=None, ddof=0, keepdims=False):
        """Return the variance along axes, the mean of squared deviations from the mean.

        Parameters
        ----------
        axis : int or tuple of int, optional
            Axes. Default: all.
        ddof : int, optional
            Number that is subtracted from the number of elements in the divisor.
        keepdims : bool, optional
            Whether these axes stay, with length 1.

        Returns
        -------
        Array
        """
        squares = (self._numbers() - self.mean(axis, keepdims=True))._unary("squared_magnitude")
        return squares.sum(axis, keepdims) / float(max(self._count(axis) - ddof, 0))

    def std(self, axis=None, ddof=0, keepdims=False):
        """Return the standard deviation along axes, the root of `var`.

        Parameters
        ----------
        axis : int or tuple of int, optional
            Axes. Default: all.
        ddof : int, optional
            Number that is subtracted from the number of elements in the divisor.
        keepdims : bool, optional
            Whether these axes stay, with length 1.

        Returns
        -------
        Array
        """
        return self.var(axis, ddof, keepdims)._unary("sqrt")
