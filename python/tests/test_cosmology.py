"""Simulations, spectra and mass functions."""

import warnings

import numpy as np
import pytest

import meshloom
from meshloom import operators as op

# Runs of so few particles are told so; those that are to be told of something else still are.
pytestmark = pytest.mark.filterwarnings("ignore:particles move by")


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


@pytest.mark.parametrize("noise_by", ["mode", "site"])
def test_the_noise_of_a_seed_is_that_of_its_run(noise_by):
    noise = meshloom.white_noise(9, 5, noise_by=noise_by)
    options = dict(box=64.0, steps=1, a_end=0.1)
    of_seed = meshloom.simulate(9, seed=5, noise_by=noise_by, **options)
    assert np.array_equal(meshloom.simulate(9, noise=noise, **options).positions, of_seed.positions)
    assert not np.array_equal(meshloom.simulate(9, seed=6, noise_by=noise_by, **options).positions, of_seed.positions)
    # 729 standard normal numbers: within four standard errors.
    assert noise.dtype == np.float32 and abs(noise.mean()) < 4 / 27 and abs(noise.var() - 1) < 4 * np.sqrt(2) / 27
    parts = meshloom.ranks(2, lambda comm: meshloom.white_noise(9, 5, noise_by=noise_by, comm=comm))
    assert [len(part) for part in parts] == [5, 4] and np.array_equal(np.concatenate(parts), noise)
    whole = meshloom.ranks(2, lambda comm: meshloom.simulate(9, noise=parts[comm.rank], comm=comm, **options).positions)
    assert np.array_equal(np.concatenate(whole), of_seed.positions)


def test_noise_by_mode_is_refined_by_more_particles():
    coarse, fine = [np.fft.rfftn(meshloom.white_noise(n, 3)) / n**1.5 for n in (8, 16)]
    assert np.abs(coarse[:4, :4, :4] - fine[:4, :4, :4]).max() < 1e-5
    coarse, fine = [np.fft.rfftn(meshloom.white_noise(n, 3, noise_by="site")) / n**1.5 for n in (8, 16)]
    assert np.abs(coarse[:4, :4, :4] - fine[:4, :4, :4]).max() > 1


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
                    dict(window="box"), dict(lpt=4), dict(seed=-1),
                    dict(noise=np.zeros((4, 4, 4))), dict(noise_by="row"), dict(seed=2**64), dict(particles=2**70), dict(steps=2**70), dict(lpt=2**70),
                    dict(noise=np.full((8, 8, 8), 1e300))]:
        with pytest.raises(ValueError):
            meshloom.simulate(**{"particles": 8, **options})
    for options in [dict(particles=8.9), dict(particles="8"), dict(mesh=16.0), dict(steps=2.9), dict(seed=1.9), dict(lpt=1.5), dict(box="32"),
                    dict(box=[32.0]), dict(a_end=None), dict(snapshots=0.5), dict(snapshots=["0.5"]), dict(cosmology="planck")]:
        with pytest.raises(TypeError, match=next(iter(options)) if "cosmology" not in options else "cosmology|h must be"):
            meshloom.simulate(**{"particles": 8, **options})
    with pytest.raises(ValueError):
        meshloom.simulate(8, noise=np.full((8, 8, 8), np.nan))
    assert meshloom.simulate(4, box=32.0, steps=1, seed=2**64 - 1).a == 1.0
    # A run as a model is a function of its noise.
    for unknown in [dict(seed=3), dict(noise=np.zeros((8, 8, 8)))]:
        with pytest.raises(TypeError, match=next(iter(unknown))):
            op.simulation(8, 16, 32.0, **unknown)


def run(comm, **options):
    return meshloom.simulate(**{"particles": 8, "box": 32.0, "steps": 1, "comm": comm, **options})


def model(comm, **options):
    return op.simulation(8, 16, 32.0, steps=1, comm=comm, **options)


def spectrum(comm, data=np.full((4, 3), 0.5), box=1.0, **options):
    return meshloom.power_spectrum(data, box, comm=comm, **{"mesh": 8, **options})


# Each of these made a wrong result, or two ranks that wait for each other.
DIFFERENT = [
    ("seed", lambda c: run(c, seed=1 + c.rank)),
    ("seed", lambda c: meshloom.white_noise(8, 1 + c.rank, comm=c)),
    ("particles", lambda c: run(c, particles=8 + c.rank, mesh=20)),
    ("box", lambda c: run(c, box=32.0 + c.rank)),
    ("cosmology", lambda c: run(c, cosmology=meshloom.Cosmology(h=0.7 + 0.01 * c.rank))),
    ("steps", lambda c: run(c, steps=1 + c.rank)),
    ("snapshots", lambda c: run(c, snapshots=[0.5] * c.rank)),
    ("noise", lambda c: run(c, noise=np.zeros((4, 8, 8)) if c.rank == 0 else None)),
    ("cosmology", lambda c: model(c, cosmology=meshloom.Cosmology(h=0.7 + 0.01 * c.rank))),
    ("a_end", lambda c: model(c, a_end=1.0 - 0.1 * c.rank)),
    ("observables", lambda c: model(c, observables=["density", "momentum"][c.rank :])),
    ("box", lambda c: spectrum(c, box=1.0 + c.rank)),
    ("mesh", lambda c: spectrum(c, mesh=8 + c.rank)),
    ("window", lambda c: spectrum(c, window=["cic", "tsc"][c.rank])),
    ("the shape of data beyond its first axis", lambda c: spectrum(c, np.ones([(4, 8, 8), (4, 3)][c.rank]), mesh=None)),
]


def said_on_two_ranks(call):
    def body(comm):
        try:
            call(comm)
        except (TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    one, other = meshloom.ranks(2, body)
    assert one == other
    return one


@pytest.mark.parametrize("number", range(len(DIFFERENT)))
def test_ranks_that_ask_for_different_things_are_told(number):
    name, call = DIFFERENT[number]
    said = said_on_two_ranks(call)
    assert said.startswith("ValueError") and f"{name} differs: " in said and " on rank 0, " in said and " on rank 1; it must be the same" in said


def test_what_one_rank_cannot_take_is_said_on_all():
    assert said_on_two_ranks(lambda c: run(c, steps=c.rank)) == "ValueError: rank 0: steps: expected 1 or more, got 0"
    assert said_on_two_ranks(lambda c: run(c, seed=[1, "1"][c.rank])) == "TypeError: rank 1: seed: expected an integer, got '1'"
    assert "(3, 8, 8)" in said_on_two_ranks(lambda c: run(c, noise=np.zeros((4 - c.rank, 8, 8))))
    assert said_on_two_ranks(lambda c: run(c, scheme="euler")).endswith("\"bullfrog\", got euler")
    assert "rank 1: " in said_on_two_ranks(lambda c: spectrum(c, np.array([["text"] * 3]) if c.rank else np.zeros((1, 3))))


def test_what_spoils_a_run_is_a_warning():
    # As the program says of the same numbers.
    with pytest.warns(RuntimeWarning, match="cells of the mesh before the first step.*take the window tsc") as said:
        meshloom.simulate(16, box=3200.0, steps=1, a_end=0.1)
    assert len(said) == 1 and said[0].filename == __file__
    for call in (lambda: meshloom.simulate(8, mesh=12, box=32.0, steps=1), lambda: op.simulation(8, 12, 32.0)):
        with pytest.warns(RuntimeWarning, match="12 cells .* 8 particles.* false wave of 4 times .* take a mesh of 16") as said:
            call()
        assert said[0].filename == __file__
    with pytest.warns(RuntimeWarning) as said:
        meshloom.ranks(2, lambda comm: run(comm, mesh=12))
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        meshloom.simulate(16, box=3200.0, steps=1, window="tsc")
        op.simulation(8, 16, 32.0, window="tsc")


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
                  lambda: meshloom.halo_mass_function(1e14, overdensity=300), lambda: meshloom.halo_mass_function(1e14, model="tinker", overdensity=100),
                  lambda: meshloom.linear_power(0.1, a=2.0), lambda: meshloom.linear_power([0.1, -1.0]), lambda: meshloom.nonlinear_power(np.nan),
                  lambda: meshloom.Cosmology().growth(0.0), lambda: meshloom.Cosmology().sigma(0.0)]:
        with pytest.raises(ValueError):
            wrong()
    for wrong in [lambda: meshloom.linear_power("k"), lambda: meshloom.linear_power(0.1, a=np.array([0.5, 1.0])),
                  lambda: meshloom.Cosmology().particle_mass(100.0, 64.5)]:
        with pytest.raises(TypeError):
            wrong()


def integral(values, x):
    return np.sum((values[1:] + values[:-1]) / 2 * np.diff(x))


def test_growth_and_distances_are_the_textbook_integrals():
    flat = meshloom.Cosmology(omega_m=0.3, radiation=None)
    hubble = lambda a: np.sqrt(0.3 / a**3 + 0.7)
    for end in (0.2, 1.0):
        a = np.linspace(1e-5, end, 200001)
        heath = 2.5 * 0.3 * hubble(end) * integral((a * hubble(a)) ** -3, a)
        assert abs(flat.growth(end) / heath - 1) < 1e-5
    assert abs(flat.growth_rate(0.5) - np.log(flat.growth(0.505) / flat.growth(0.495)) / np.log(0.505 / 0.495)) < 1e-4
    a = np.linspace(0.5, 1.0, 10001)
    assert abs(flat.comoving_distance(0.5) / (2997.92458 * integral(1 / (a**2 * hubble(a)), a)) - 1) < 1e-7
    assert flat.growth([0.5, 1.0]).shape == (2,) and flat.comoving_distance(1.0) == 0.0


def test_contrast_and_nonlinear_power():
    of_sigma8 = meshloom.Cosmology(sigma8=0.8)
    assert abs(of_sigma8.sigma(8.0) - 0.8) < 1e-6
    assert np.isclose(of_sigma8.sigma(8.0, a=0.5), 0.8 * of_sigma8.growth(0.5) / of_sigma8.growth(1.0))
    # Watson et al. (2013), equation 12.
    mass, density = 1e14, 0.3111 * 2.77536627e11
    spheres = [(3 * m / (4 * np.pi * density)) ** (1 / 3) for m in (mass * 0.999, mass, mass * 1.001)]
    low, s, high = of_sigma8.sigma(spheres)
    slope = np.log(low / high) / np.log(1.001 / 0.999)
    watson = 0.282 * ((1.406 / s) ** 2.163 + 1) * np.exp(-1.210 / s**2) * density / mass * slope
    assert abs(meshloom.halo_mass_function(mass, model="watson", cosmology=of_sigma8) / watson - 1) < 1e-4
    k = [0.01, 1.0]
    ratio = meshloom.nonlinear_power(k) / meshloom.linear_power(k)
    assert abs(ratio[0] - 1) < 0.02 and ratio[1] > 5


def test_spectra_of_nothing_are_refused():
    for wrong in [lambda: meshloom.power_spectrum(np.zeros((0, 3)), 10.0), lambda: meshloom.power_spectrum([[0.5] * 3], 1.0, mesh=1),
                  lambda: meshloom.power_spectrum(np.ones((1, 1, 1)), 1.0), lambda: meshloom.power_spectrum(np.zeros((2, 0, 2)), 1.0)]:
        with pytest.raises(ValueError, match="at least one|one at least|2 cells"):
            wrong()
    # One rank may have no points.
    parts = meshloom.ranks(2, lambda comm: meshloom.power_spectrum(np.random.default_rng(1).random((50 * comm.rank, 3)), 1.0, mesh=8, comm=comm))
    assert np.array_equal(parts[0].power, meshloom.power_spectrum(np.random.default_rng(1).random((50, 3)), 1.0, mesh=8).power)


def test_spectrum_of_a_plane_wave():
    n, box = 16, 10.0
    x = np.arange(n) / n
    wave = 2.0 * (1.0 + 0.1 * np.cos(2 * np.pi * 3 * x))[:, None, None] * np.ones((n, n, n))
    spectrum = meshloom.power_spectrum(wave, box)
    # |delta|^2 V / N^2 of two modes of amplitude 0.05, over the modes of the bin.
    assert np.isclose(spectrum.power[2] * spectrum.modes[2], 2 * 0.05**2 * box**3, rtol=1e-5)
    assert np.delete(spectrum.power, 2).max() < 1e-10 * spectrum.power[2]


def naive_power(contrast, box):
    """Mean |delta_k|^2 V / N^2 of bins one fundamental mode wide, in double precision."""
    n = contrast.shape[0]
    modes = np.abs(np.fft.fftn(contrast)) ** 2 * box**3 / contrast.size**2
    k = np.fft.fftfreq(n) * n
    bins = (np.sqrt(k[:, None, None] ** 2 + k[:, None] ** 2 + k**2) + 0.5).astype(int)
    return np.array([modes[bins == b].mean() for b in range(1, n // 2 + 1)])


def test_contrasts_are_measured_as_they_are():
    contrast = 0.1 * np.random.default_rng(0).normal(size=(16, 16, 16))
    with pytest.raises(ValueError, match="contrast=True"):
        meshloom.power_spectrum(contrast, 100.0)
    with pytest.raises(ValueError, match="contrast=True"):
        meshloom.power_spectrum(-1 - contrast, 100.0)
    with pytest.raises(ValueError, match="fields"):
        meshloom.power_spectrum(np.full((9, 3), 0.5), 1.0, contrast=True)
    found = meshloom.power_spectrum(contrast, 100.0, contrast=True).power
    assert np.allclose(found, naive_power(contrast, 100.0), rtol=1e-5)
    balanced = contrast - contrast.mean()
    assert np.allclose(meshloom.power_spectrum(balanced, 100.0, contrast=True).power, found, rtol=1e-5)
    density = meshloom.power_spectrum(1 + balanced, 100.0).power
    assert np.allclose(density, found, rtol=1e-5)


def test_weights_of_points_are_those_of_repeated_points():
    rng = np.random.default_rng(1)
    points, weights = rng.random((300, 3)) * 10, rng.integers(0, 4, 300)
    repeated = meshloom.power_spectrum(np.repeat(points, weights, axis=0), 10.0, mesh=16)
    weighted = meshloom.power_spectrum(points, 10.0, mesh=16, weights=0.7 * weights)
    assert np.allclose(weighted.power, repeated.power, rtol=1e-5)
    noise = 1000 * np.sum(weights**2) / np.sum(weights) ** 2
    less = meshloom.power_spectrum(points, 10.0, mesh=16, weights=weights, shot_noise=True)
    assert np.allclose(less.power, weighted.power - noise, rtol=1e-4, atol=1e-4 * noise)
    on_ranks = meshloom.ranks(3, lambda comm: meshloom.power_spectrum(
        np.array_split(points, 3)[comm.rank], 10.0, mesh=16, weights=np.array_split(0.7 * weights, 3)[comm.rank], comm=comm))
    assert all(np.array_equal(part.power, weighted.power) for part in on_ranks)
    for wrong, why in [(weights[:-1], "weights: expected the shape"), (-weights, "weight of point"), (0 * weights, "not all 0")]:
        with pytest.raises(ValueError, match=why):
            meshloom.power_spectrum(points, 10.0, mesh=16, weights=wrong)
    with pytest.raises(ValueError, match="weights are for points"):
        meshloom.power_spectrum(np.ones((4, 4, 4)), 1.0, weights=np.ones(4))


def test_a_cosmology_has_one_amplitude_and_possible_numbers():
    with pytest.raises(TypeError, match="A_s and sigma8"):
        meshloom.Cosmology(sigma8=0.8, A_s=2e-9)
    assert meshloom.Cosmology(sigma8=0.8).A_s is None and meshloom.Cosmology().A_s > 1e-9
    assert meshloom.Cosmology(A_s=2e-9).sigma(8.0) == pytest.approx(0.8109, abs=2e-4)
    with pytest.raises(ValueError):
        meshloom.Cosmology(omega_m=-1)
    with pytest.raises(TypeError):
        meshloom.Cosmology(h="0.7")
    assert meshloom.PowerSpectrum._fields == ("k", "power", "modes")
