"""Cosmologies, the linear power spectrum and the mass function of halos."""

from dataclasses import dataclass
from typing import Optional

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._arrays import real_array

_OMEGA_M, _OMEGA_B, _H, _N_S, _A_S, _, _T_CMB, _W0, _WA, _RADIATION = _native.usual_cosmology()


@dataclass(frozen=True)
class Cosmology:
    """A flat universe of matter and dark energy, and radiation in the expansion; `planck18` of the program unless said otherwise: Planck 2018 with
    ``sigma8 = 0.8102``.

    Attributes
    ----------
    omega_m, omega_b : float
        Densities of matter and of baryons today, over the critical one.
    h : float
        Hubble constant in 100 km/s/Mpc.
    n_s : float
        Spectral index of the primordial fluctuations.
    A_s : float, optional
        Their amplitude at 0.05/Mpc; None if `sigma8` is given.
    sigma8 : float, optional
        The rms contrast in spheres of 8 Mpc/h today, in place of `A_s`.
    t_cmb : float
        Temperature of the microwave background in kelvin.
    w0, wa : float
        Dark energy: ``w(a) = w0 + wa (1 - a)``; a cosmological constant unless given.
    radiation : float, optional
        Relativistic neutrino species, 3.046 unless given: photons and they take part in the expansion. None: the expansion has no radiation.

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
            raise TypeError("A_s and sigma8 are two amplitudes of one spectrum; give one of them (and None for the other)")
        if self.A_s is None and self.sigma8 is None:
            object.__setattr__(self, "A_s", _A_S)
        # The library says which number is none.
        _native.particle_mass(1.0, 1, parameters(self))

    def particle_mass(self, box, particles):
        """The mass in Msun/h of each of ``particles**3`` particles in a box of this side in Mpc/h."""
        return _native.particle_mass(real_number(box, "box"), whole_number(particles, "particles", 1) ** 3, parameters(self))

    def growth(self, a):
        """Linear growth factor D at scale factors `a`, normalized to ``D = a`` in the matter era.

        Returns a float for a scalar `a` and an `ndarray` otherwise.
        """
        return _at(a, "a", lambda a: _native.growth(a, parameters(self)))

    def growth_rate(self, a):
        """Logarithmic growth rate, ``f = dlnD/dlna``, at scale factors `a`."""
        return _at(a, "a", lambda a: _native.growth_rate(a, parameters(self)))

    def comoving_distance(self, a):
        """Comoving distance in Mpc/h to light emitted at scale factors `a`."""
        return _at(a, "a", lambda a: _native.comoving_distance(a, parameters(self)))

    def sigma(self, radius, a=1.0):
        """The linear rms contrast in spheres of radii in Mpc/h; ``sigma(8.0)`` is sigma8."""
        a = real_number(a, "a")
        return _at(radius, "radius", lambda radius: _native.sigma(radius, a, parameters(self)))


def parameters(cosmology):
    """The numbers of a cosmology as the library takes them."""
    if cosmology is None:
        cosmology = Cosmology()
    if not isinstance(cosmology, Cosmology):
        raise TypeError(f"cosmology must be a meshloom.Cosmology, not {type(cosmology).__name__}")
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
    """A spectrum at wavenumbers."""
    a, cosmology = real_number(a, "a"), parameters(cosmology)

    def at(k):
        wrong = k[~((k >= 0) & (k < np.inf))]
        if wrong.size:
            raise ValueError(f"k has {wrong[0]:g}; wavenumbers must be 0 or above, and finite")
        return native(k, a, cosmology)

    return _at(k, "k", at)


def linear_power(k, a=1.0, cosmology=None):
    """The linear power spectrum of matter (Eisenstein & Hu 1998, with baryons).

    Parameters
    ----------
    k : array_like
        Wavenumbers in h/Mpc.
    a : float
        Scale factor.
    cosmology : Cosmology, optional

    Returns
    -------
    ndarray or float
        In (Mpc/h)^3.

    Examples
    --------
    >>> from meshloom import linear_power
    >>> bool(linear_power(0.1) > linear_power(1.0) > linear_power(1.0, a=0.5))
    True
    """
    return _spectrum(k, a, cosmology, _native.linear_power)


def nonlinear_power(k, a=1.0, cosmology=None):
    """The nonlinear power spectrum of matter by halofit (Takahashi et al. 2012) of `linear_power`, whose arguments and units it has. Within 5 % of simulations
    up to 1 h/Mpc, 10 % up to 10.

    Examples
    --------
    >>> from meshloom import linear_power, nonlinear_power
    >>> bool(nonlinear_power(1.0) > 5 * linear_power(1.0))
    True
    """
    return _spectrum(k, a, cosmology, _native.nonlinear_power)


def halo_mass_function(mass, a=1.0, model="sheth-tormen", cosmology=None, overdensity=None):
    """Halos per unit of ln M and of comoving volume that a model expects.

    Parameters
    ----------
    mass : array_like
        Masses in Msun/h.
    a : float
        Scale factor.
    model : {"press-schechter", "sheth-tormen", "watson", "tinker"}
        Press & Schechter (1974), Sheth & Tormen (1999; close to groups by friends of friends), Watson et al. (2013; measured of such groups), or Tinker et
        al. (2008).
    cosmology : Cosmology, optional
    overdensity : float, optional
        Of Tinker's halos, which alone have one: their mean density over that of matter, from 200 (unless given) to 3200.

    Returns
    -------
    ndarray or float
        dn/dlnM in (h/Mpc)^3.

    Examples
    --------
    >>> from meshloom import halo_mass_function
    >>> bool(halo_mass_function(1e13) > halo_mass_function(1e14) > halo_mass_function(1e14, a=0.5))
    True
    """
    if overdensity is not None and model != "tinker":
        raise ValueError(f"overdensity is {overdensity}, and halos of the model {model!r} have none; leave it out, or take \"tinker\"")
    a, overdensity = real_number(a, "a"), 200.0 if overdensity is None else real_number(overdensity, "overdensity")
    return _at(mass, "mass", lambda mass: _native.halo_mass_function(mass, a, model, overdensity, parameters(cosmology)))
