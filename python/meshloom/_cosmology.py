"""Cosmologies, power spectra of linear theory and halofit, and halo mass functions."""

from dataclasses import dataclass
from typing import Optional

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._arrays import real_array

_OMEGA_M, _OMEGA_B, _H, _N_S, _A_S, _, _T_CMB, _W0, _WA, _RADIATION = _native.usual_cosmology()


@dataclass(frozen=True)
class Cosmology:
    """A flat universe of matter, dark energy and radiation.

    The default is Planck 2018 with ``sigma8 = 0.8102``, the program's `planck18`. Instances are
    immutable.

    Attributes
    ----------
    omega_m, omega_b : float
        Densities of matter and of baryons today, in units of the critical density.
    h : float
        Hubble constant in 100 km/s/Mpc.
    n_s : float
        Spectral index of the primordial fluctuations.
    A_s : float or None
        Amplitude of the primordial fluctuations at 0.05/Mpc; None if `sigma8` is given.
    sigma8 : float or None
        Root mean square density contrast in spheres of 8 Mpc/h today, instead of `A_s`.
    t_cmb : float
        Temperature of the microwave background in kelvin.
    w0, wa : float
        Equation of state of dark energy, ``w(a) = w0 + wa (1 - a)``. Default: -1 and 0, a
        cosmological constant.
    radiation : float or None
        Number of relativistic neutrino species, 3.046 by default. Photons and neutrinos take part
        in the expansion. None: an expansion without radiation.

    Raises
    ------
    TypeError
        If both `A_s` and `sigma8` are given.
    ValueError
        If a parameter is not finite or out of range.

    Examples
    --------
    >>> from meshloom import Cosmology
    >>> round(Cosmology(sigma8=0.8).particle_mass(128.0, 64) / 1e11, 2)
    6.91
    """

    omega_m: float = _OMEGA_M
    omega_b: float = _OMEGA_B
    h: float = _H
    n_s: float = _N_S
    A_s: Optional[float] = None
    sigma8: Optional[float] = None
    t_cmb: float = _T_CMB
    w0: float = _W0
    wa: float = _WA
    radiation: Optional[float] = _RADIATION

    def __post_init__(self):
        if self.A_s is not None and self.sigma8 is not None:
            raise TypeError("A_s and sigma8: expected one of them, got both; they are amplitudes of the same spectrum")
        if self.A_s is None and self.sigma8 is None:
            object.__setattr__(self, "A_s", _A_S)
        # The extension module checks the numbers and names an invalid one.
        _native.particle_mass(1.0, 1, parameters(self))

    def particle_mass(self, box, particles):
        """Return the mass of a particle of a simulation.

        Parameters
        ----------
        box : float
            Side length of the box in Mpc/h, positive.
        particles : int
            Number of particles along each axis.

        Returns
        -------
        float
            Mass in Msun/h of each of ``particles**3`` particles.

        Examples
        --------
        >>> from meshloom import Cosmology
        >>> f"{Cosmology().particle_mass(64.0, 64):.3e}"
        '8.634e+10'
        """
        return _native.particle_mass(real_number(box, "box"), whole_number(particles, "particles", 1) ** 3, parameters(self))

    def growth(self, a):
        """Return the linear growth factor D(a), normalized to ``D = a`` in the matter era.

        Parameters
        ----------
        a : array_like
            Scale factors, positive.

        Returns
        -------
        float or ndarray, shape of `a`

        Examples
        --------
        >>> from meshloom import Cosmology
        >>> cosmology = Cosmology()
        >>> bool(0.7 < cosmology.growth(1.0) < 0.8)
        True
        """
        return _at(a, "a", lambda a: _native.growth(a, parameters(self)))

    def growth_rate(self, a):
        """Return the logarithmic growth rate ``f = dlnD/dlna``.

        Parameters
        ----------
        a : array_like
            Scale factors, positive.

        Returns
        -------
        float or ndarray, shape of `a`

        Examples
        --------
        >>> from meshloom import Cosmology
        >>> bool(0.5 < Cosmology().growth_rate(1.0) < 0.55)
        True
        """
        return _at(a, "a", lambda a: _native.growth_rate(a, parameters(self)))

    def comoving_distance(self, a):
        """Return the comoving distance to light emitted at the scale factor `a`.

        Parameters
        ----------
        a : array_like
            Scale factors, positive.

        Returns
        -------
        float or ndarray, shape of `a`
            Distances in Mpc/h.

        Examples
        --------
        >>> from meshloom import Cosmology
        >>> round(Cosmology().comoving_distance(0.5))
        2297
        """
        return _at(a, "a", lambda a: _native.comoving_distance(a, parameters(self)))

    def sigma(self, radius, a=1.0):
        """Return the linear root mean square density contrast in spheres.

        Parameters
        ----------
        radius : array_like
            Radii of the spheres in Mpc/h, positive.
        a : float, default 1.0
            Scale factor.

        Returns
        -------
        float or ndarray, shape of `radius`
            ``sigma(8.0)`` is sigma8.

        Examples
        --------
        >>> from meshloom import Cosmology
        >>> round(Cosmology(sigma8=0.8).sigma(8.0), 4)
        0.8
        """
        a = real_number(a, "a")
        return _at(radius, "radius", lambda radius: _native.sigma(radius, a, parameters(self)))


def parameters(cosmology):
    """Return the numbers of a cosmology as the extension module takes them."""
    if cosmology is None:
        cosmology = Cosmology()
    if not isinstance(cosmology, Cosmology):
        raise TypeError(f"cosmology: expected a meshloom.Cosmology, got {type(cosmology).__name__}")
    c, given = cosmology, cosmology.sigma8 is not None
    amplitude = c.sigma8 if given else c.A_s
    radiation = None if c.radiation is None else real_number(c.radiation, "radiation")
    amplitude = real_number(amplitude, "sigma8" if given else "A_s")
    numbers = [real_number(getattr(c, name), name) for name in ("omega_m", "omega_b", "h", "n_s")]
    others = [real_number(getattr(c, name), name) for name in ("t_cmb", "w0", "wa")]
    return (*numbers, amplitude, given, *others, radiation)


def _at(values, name, function):
    values = real_array(values, name).astype(np.float64)
    found = function(values.ravel()).reshape(values.shape)
    return float(found) if values.ndim == 0 else found


def _spectrum(k, a, cosmology, native):
    """Return a spectrum at wavenumbers."""
    a, cosmology = real_number(a, "a"), parameters(cosmology)

    def at(k):
        wrong = k[~((k >= 0) & (k < np.inf))]
        if wrong.size:
            raise ValueError(f"k: expected finite wavenumbers of 0 or more, got {wrong[0]:g}")
        return native(k, a, cosmology)

    return _at(k, "k", at)


def linear_power(k, a=1.0, cosmology=None):
    """Compute the linear power spectrum of matter (Eisenstein & Hu 1998, with baryons).

    Parameters
    ----------
    k : array_like
        Wavenumbers in h/Mpc, 0 or more.
    a : float, default 1.0
        Scale factor.
    cosmology : Cosmology, optional
        Default: ``Cosmology()``.

    Returns
    -------
    float or ndarray, shape of `k`
        Power in (Mpc/h)^3.

    Raises
    ------
    ValueError
        If a wavenumber is negative or not finite, or `a` is not positive.

    Notes
    -----
    Not collective: runs on the host in float64.

    Examples
    --------
    >>> from meshloom import linear_power
    >>> bool(linear_power(0.1) > linear_power(1.0) > linear_power(1.0, a=0.5))
    True
    """
    return _spectrum(k, a, cosmology, _native.linear_power)


def nonlinear_power(k, a=1.0, cosmology=None):
    """Compute the nonlinear power spectrum of matter with halofit (Takahashi et al. 2012).

    Parameters
    ----------
    k : array_like
        Wavenumbers in h/Mpc, 0 or more.
    a : float, default 1.0
        Scale factor.
    cosmology : Cosmology, optional
        Default: ``Cosmology()``.

    Returns
    -------
    float or ndarray, shape of `k`
        Power in (Mpc/h)^3: within 5 % of simulations up to 1 h/Mpc, within 10 % up to 10 h/Mpc.

    Raises
    ------
    ValueError
        If a wavenumber is negative or not finite, or `a` is not positive.

    Notes
    -----
    Not collective: runs on the host in float64.

    Examples
    --------
    >>> from meshloom import linear_power, nonlinear_power
    >>> bool(nonlinear_power(1.0) > 5 * linear_power(1.0))
    True
    """
    return _spectrum(k, a, cosmology, _native.nonlinear_power)


def halo_mass_function(mass, a=1.0, model="sheth-tormen", cosmology=None, overdensity=None):
    """Compute the number density of halos that a model predicts.

    Parameters
    ----------
    mass : array_like
        Halo masses in Msun/h, positive.
    a : float, default 1.0
        Scale factor.
    model : {"press-schechter", "sheth-tormen", "watson", "tinker"}, default "sheth-tormen"
        Press & Schechter (1974), Sheth & Tormen (1999, close to friends-of-friends groups), Watson
        et al. (2013, fitted to such groups) or Tinker et al. (2008, spherical overdensity).
    cosmology : Cosmology, optional
        Default: ``Cosmology()``.
    overdensity : float, optional
        Mean density of a halo in units of the mean matter density, 200 (default) to 3200; only for
        "tinker".

    Returns
    -------
    float or ndarray, shape of `mass`
        Comoving number density per unit of ln M, dn/dlnM, in (h/Mpc)^3.

    Raises
    ------
    ValueError
        If a mass is not positive, `model` is unknown, or `overdensity` is given for another model.

    Notes
    -----
    Not collective: runs on the host in float64.

    Examples
    --------
    >>> from meshloom import halo_mass_function
    >>> bool(halo_mass_function(1e13) > halo_mass_function(1e14) > halo_mass_function(1e14, a=0.5))
    True
    """
    if overdensity is not None and model != "tinker":
        raise ValueError(f"overdensity: expected None for the model {model!r}, got {overdensity}; leave it out or choose \"tinker\"")
    a, overdensity = real_number(a, "a"), 200.0 if overdensity is None else real_number(overdensity, "overdensity")
    return _at(mass, "mass", lambda mass: _native.halo_mass_function(mass, a, model, overdensity, parameters(cosmology)))
