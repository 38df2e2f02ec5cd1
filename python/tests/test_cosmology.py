"""Simulations, spectra and mass functions."""

import numpy as np
import pytest

import meshloom


def test_a_run_with_snapshots_and_progress():
    told = []
    run = meshloom.simulate(8, box=32.0, steps=4, snapshots=[0.5], progress=lambda *now: told.append(now))
    assert [now[0] for now in told] == list(range(told[-1][1] + 1)) and told[-1][2] == 1.0
    assert len(run.snapshots) == 1 and run.snapshots[0].a == 0.5 and run.a == 1.0
    again = meshloom.simulate(8, box=32.0, steps=4, snapshots=[0.5])
    assert np.array_equal(run.positions, again.positions) and np.array_equal(run.velocities, again.velocities)
    assert ((run.positions >= 0) & (run.positions < 32.0)).all()
    # The run's own spectrum is that of its positions on the same mesh.
    spectrum = meshloom.power_spectrum(run.positions, 32.0, mesh=16)
    assert np.abs(spectrum.power / run.power.power - 1).max() < 1e-4
    assert np.array_equal(spectrum.modes, run.power.modes)


def test_noise_is_that_of_the_caller():
    noise = np.random.default_rng(2).standard_normal((8, 8, 8))
    run = meshloom.simulate(8, box=64.0, steps=2, noise=noise, a_end=0.1)
    same = meshloom.simulate(8, box=64.0, steps=2, noise=noise.astype(np.float32), seed=9, a_end=0.1)
    assert np.array_equal(run.positions, same.positions)


def test_a_bar_is_advanced():
    class Bar:
        total, count = None, 0

        def update(self, steps):
            self.count += steps

    bar = Bar()
    meshloom.simulate(8, box=32.0, steps=3, progress=bar)
    assert bar.count == bar.total == 3


def test_errors_of_callbacks_and_parameters_come_through():
    def fail(step, steps, a):
        raise KeyError("from the callback")

    with pytest.raises(KeyError, match="from the callback"):
        meshloom.simulate(8, box=32.0, steps=2, progress=fail)
    for options in [dict(particles=0), dict(particles=8, mesh=4), dict(box=-1.0), dict(steps=0), dict(a_end=2.0), dict(scheme="euler"),
                    dict(window="box"), dict(lpt=3), dict(seed=-1), dict(cosmology=meshloom.Cosmology(omega_m=31.0)),
                    dict(noise=np.zeros((4, 4, 4)))]:
        with pytest.raises(ValueError):
            meshloom.simulate(**{"particles": 8, **options})
    with pytest.raises(TypeError):
        meshloom.simulate(8, cosmology="planck")
    with pytest.raises(ValueError):
        meshloom.simulate(8, noise=np.full((8, 8, 8), np.nan))


def test_the_universe_is_that_of_the_program():
    usual = meshloom.Cosmology()
    # planck18: the published sigma8, and radiation.
    assert (usual.A_s, usual.radiation, usual.omega_m, usual.h) == (1.996492182025e-9, 3.046, 0.3111, 0.6766)
    k = np.logspace(-3, 1, 50)
    of_sigma8 = meshloom.linear_power(k, cosmology=meshloom.Cosmology(sigma8=0.8102))
    assert np.abs(meshloom.linear_power(k) / of_sigma8 - 1).max() < 1e-8


def test_models():
    assert abs(np.log(meshloom.halo_mass_function(1e14, model="press-schechter") / meshloom.halo_mass_function(1e14))) < 1
    assert meshloom.halo_mass_function([[1e13, 1e14]], model="tinker").shape == (1, 2)
    k = np.logspace(-3, 1, 2000)
    x = 8.0 * k
    window = 3 * (np.sin(x) - x * np.cos(x)) / x**3
    integrand = meshloom.linear_power(k, cosmology=meshloom.Cosmology(sigma8=0.8)) * window**2 * k**3 / (2 * np.pi**2)
    # The definition of sigma8, by a trapezium in ln k.
    assert abs(np.sqrt(np.sum((integrand[1:] + integrand[:-1]) / 2 * np.diff(np.log(k)))) - 0.8) < 1e-3
    for wrong in [lambda: meshloom.halo_mass_function(-1.0), lambda: meshloom.halo_mass_function(1e14, model="warren"),
                  lambda: meshloom.linear_power(0.1, a=2.0)]:
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(TypeError):
        meshloom.linear_power("k")


def test_spectrum_of_a_plane_wave():
    n, box = 16, 10.0
    x = np.arange(n) / n
    wave = 2.0 * (1.0 + 0.1 * np.cos(2 * np.pi * 3 * x))[:, None, None] * np.ones((n, n, n))
    spectrum = meshloom.power_spectrum(wave, box)
    # |delta|^2 V / N^2 of two modes of amplitude 0.05, over the modes of the bin.
    assert np.isclose(spectrum.power[2] * spectrum.modes[2], 2 * 0.05**2 * box**3, rtol=1e-5)
    assert np.delete(spectrum.power, 2).max() < 1e-10 * spectrum.power[2]
