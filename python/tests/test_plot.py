"""Plots have labels with units, limits and legends, and their errors name a remedy."""

import builtins
import sys

import numpy as np
import pytest

import meshloom
from meshloom import plot

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")
pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    for number in pyplot.get_fignums():
        pyplot.figure(number).canvas.draw()
    pyplot.close("all")


def color_bar(ax):
    """The label of the color bar of a map."""
    return ax.images[0].colorbar.ax.get_ylabel()


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_posterior_maps_share_the_color_scale_of_truth_and_mean():
    truth = np.arange(24.0).reshape(4, 6)
    axes = plot.posterior(truth / 2, np.ones((4, 6)), truth, size=(2.0, 3.0), unit="deg", label="flux [Jy]")
    assert [ax.get_title() for ax in axes] == ["truth", "posterior mean", "standard deviation"]
    assert axes[0].images[0].get_clim() == axes[1].images[0].get_clim() == (0.0, 23.0)
    assert [color_bar(ax) for ax in axes] == ["flux [Jy]"] * 3
    assert axes[0].get_xlabel() == "x [deg]" and axes[0].get_ylabel() == "y [deg]"
    assert axes[0].get_xlim() == (0.0, 2.0) and axes[0].get_ylim() == (0.0, 3.0)
    # The first axis of the field is horizontal.
    assert np.array_equal(axes[0].images[0].get_array(), truth.T)


def test_posterior_takes_device_arrays_and_axes():
    axes = pyplot.subplots(1, 2)[1]
    mean = meshloom.asarray(np.zeros((4, 4), np.float32))
    found = plot.posterior(mean, np.ones((4, 4)), ax=axes)
    assert all(one is other for one, other in zip(found, axes))
    assert [ax.get_title() for ax in axes] == ["posterior mean", "standard deviation"]
    assert axes[0].get_xlabel() == "x [cells]"
    with pytest.raises(ValueError, match="ax: expected 3 Axes, got 2"):
        plot.posterior(mean, mean, mean, ax=axes)
    with pytest.raises(ValueError, match="the same shape"):
        plot.posterior(mean, np.ones((4, 5)))
    with pytest.raises(ValueError, match="expected 1 or 2 axes"):
        plot.posterior(np.zeros((2, 2, 2)), np.zeros((2, 2, 2)))


def test_posterior_of_a_curve_has_bands():
    ax = plot.posterior(np.zeros(5), np.ones(5), np.ones(5), size=10.0, unit="s", label="signal [V]")
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xlim()) == ("x [s]", "signal [V]", (0.0, 10.0))
    assert legend(ax) == ["2 standard deviations", "1 standard deviation", "posterior mean", "truth"]
    assert ax.lines[0].get_xdata().tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]


def test_spectra_of_samples_are_a_median_with_a_band():
    k = np.array([0.0, 0.1, 0.2])
    samples = np.array([[9.0, 1.0, 10.0], [9.0, 2.0, 20.0], [9.0, 3.0, 30.0]])
    ax = plot.power_spectrum(k, samples, quantiles=(0, 1), label="posterior")
    same = plot.power_spectrum(k, samples[0], label="truth", color="black", ax=ax)
    assert same is ax and legend(ax) == ["posterior", "truth"]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert ax.get_xlabel() == "wavenumber k [(Mpc/h)$^{-1}$]" and ax.get_ylabel() == "power P(k) [(Mpc/h)$^3$]"
    # The mode of wavenumber 0 has no place on a logarithmic axis.
    assert ax.lines[0].get_xdata().tolist() == [0.1, 0.2] and ax.lines[0].get_ydata().tolist() == [2.0, 20.0]
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 1.0 and band[:, 1].max() == 30.0
    with pytest.raises(ValueError, match="power: expected 3 bins"):
        plot.power_spectrum(k, samples[:, :2])
    with pytest.raises(ValueError, match="quantiles: expected"):
        plot.power_spectrum(k, samples, quantiles=(0.9, 0.1))


def test_mass_functions_count_halos_per_volume_and_logarithm_of_mass():
    masses, edges = [2e12, 3e12, 5e13], [1e12, 1e13, 1e14, 1e15]
    ax = plot.mass_function(masses, 10.0, edges=edges, models=["tinker"], a=0.5)
    assert legend(ax) == ["Tinker", "halos"]
    data = ax.containers[0].lines[0]
    assert np.allclose(data.get_ydata(), np.array([2, 1]) / (np.log(10) * 1000))
    assert np.allclose(data.get_xdata(), [10**12.5, 10**13.5])
    assert ax.get_xlabel() == "halo mass M [Msun/h]" and ax.get_ylabel() == "number density dn/dlnM [(h/Mpc)$^3$]"
    mass = ax.lines[0].get_xdata()
    assert np.allclose(ax.lines[0].get_ydata(), meshloom.halo_mass_function(mass, 0.5, "tinker"))
    for wrong in ([], [-1.0], [np.nan]):
        with pytest.raises(ValueError, match="masses: expected"):
            plot.mass_function(wrong, 10.0)
    with pytest.raises(ValueError, match="box: expected"):
        plot.mass_function(masses, 0.0)


def test_projected_densities_are_in_units_of_the_mean():
    points = [[0.1, 0.1, 0.9], [0.1, 0.1, 0.1], [0.6, 0.1, 0.1], [-0.4, 1.6, 0.5]]
    ax = plot.projected_density(points, 1.0, cells=2, unit="m")
    # Rows of an image are along the vertical axis. Two of four points are in one of four pixels.
    assert ax.images[0].get_array().tolist() == [[2.0, 1.0], [1.0, 1.0]]
    assert (ax.get_xlabel(), ax.get_ylabel(), color_bar(ax)) == ("x [m]", "y [m]", "projected density / mean")
    ax = plot.projected_density(points, [1.0, 1.0, 3.0], cells=2, axis=1, weights=[3.0, 1.0, 2.0, 2.0])
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_ylim()) == ("x [Mpc/h]", "z [Mpc/h]", (0.0, 3.0))
    ax = plot.projected_density(np.array(points)[:, :2], 1.0, cells=2)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x [Mpc/h]", "y [Mpc/h]")
    for wrong in ({"box": 0.0}, {"box": 1.0, "axis": 3}, {"box": 1.0, "cells": 0}):
        with pytest.raises(ValueError, match="expected"):
            plot.projected_density(points, **wrong)


def test_correlation_functions_of_random_points_vanish():
    edges = np.linspace(0.0, 0.4, 9)
    points = np.random.default_rng(1).random((2000, 3))
    counts = meshloom.pair_counts(points, edges, box=1.0)
    ax = plot.correlation_function(edges, counts, len(points), [1.0] * 3, unit="m", label="random")
    bars = ax.containers[0]
    xi = bars.lines[0].get_ydata()
    assert np.all(np.abs(xi) < 5 / np.sqrt(counts / 2)) and len(xi) == 8
    assert (ax.get_xlabel(), legend(ax), ax.get_xlim()) == ("distance r [m]", ["random"], (0.0, 0.4))
    plane = meshloom.pair_counts(points[:, :2], edges, box=1.0)
    flat = plot.correlation_function(edges, plane, len(points), [1.0] * 2).containers[0].lines[0].get_ydata()
    assert np.all(np.abs(flat) < 5 / np.sqrt(plane / 2))
    with pytest.raises(ValueError, match="box: expected two or three"):
        plot.correlation_function(edges, counts, 2000, 1.0)
    with pytest.raises(ValueError, match="counts: expected 8 bins"):
        plot.correlation_function(edges, counts[1:], 2000, [1.0] * 3)
    ax = plot.pair_counts(edges, counts, label="pairs")
    assert (ax.get_ylabel(), ax.get_yscale(), legend(ax)) == ("ordered pairs per bin", "log", ["pairs"])


def test_positive_correlation_functions_are_logarithmic():
    edges, pairs = np.geomspace(0.01, 0.4, 5), 1000 * 999 * np.diff(4 / 3 * np.pi * np.geomspace(0.01, 0.4, 5) ** 3)
    scales = lambda ax: (ax.get_xscale(), ax.get_yscale())
    ax = plot.correlation_function(edges, 2 * pairs, 1000, [1.0] * 3)
    assert scales(plot.correlation_function(edges, 3 * pairs, 1000, [1.0] * 3, ax=ax)) == ("log", "log")
    # One negative value needs linear axes, whatever the order of the curves.
    assert scales(plot.correlation_function(edges, pairs / 2, 1000, [1.0] * 3, ax=ax)) == ("linear", "linear")
    assert scales(plot.correlation_function(edges, 2 * pairs, 1000, [1.0] * 3, ax=ax)) == ("linear", "linear")
    from_zero = plot.correlation_function([0.0, 0.2], 2 * pairs[:1], 1000, [1.0] * 3)
    assert scales(from_zero) == ("linear", "linear")


@pytest.mark.parametrize("decades", [0.15, 0.5, 1.0, 1.3, 3.0])
@pytest.mark.parametrize("least", [3e12, 8e12])
def test_labels_of_masses_do_not_overlap(least, decades):
    ax = plot.mass_function(least * np.geomspace(1.0, 10**decades, 40), 100.0)
    ax.figure.canvas.draw()
    labels = [*ax.get_xticklabels(), *ax.get_xticklabels(minor=True)]
    low, high = ax.get_xlim()
    places = [*ax.xaxis.get_majorticklocs(), *ax.xaxis.get_minorticklocs()]
    boxes = [label.get_window_extent() for at, label in sorted(zip(places, labels), key=lambda pair: pair[0]) if low <= at <= high and label.get_text()]
    assert len(boxes) >= 2 and all(one.x1 < other.x0 for one, other in zip(boxes, boxes[1:]))


def test_missing_matplotlib_is_an_error_with_a_remedy(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    with pytest.raises(ImportError, match=r"pip install meshloom\[plot\]"):
        plot.pair_counts([0.0, 1.0], [3])
