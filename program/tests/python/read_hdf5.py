"""Reads a snapshot and a catalog of groups with the field's tools, and compares what they say with the truth.

usage: read_hdf5.py DIRECTORY

DIRECTORY has one/ and parts/ with snapshot files, positions.npy and velocities.npy of the same moment, groups.0.hdf5 with
the numbers of groups.json, and truth.json with box, a, h, Omega_m and Omega_b.
"""

import glob
import json
import os
import sys
import warnings

import h5py
import numpy as np

os.chdir(sys.argv[1])
warnings.simplefilter("ignore")

truth = json.load(open("truth.json"))
a, h, box, omega_m = (truth[name] for name in ("a", "h", "box", "Omega_m"))
x = np.load("one/positions.npy").astype(np.float64)
p = np.load("one/velocities.npy").astype(np.float64)
n = len(x)

# p = a^2 dx/dt in H0 Mpc/h = 100 km/s: the peculiar velocity is a dx/dt.
v = 100.0 * p / a
# Newton's constant in (km/s)^2 kpc/Msun; the critical density for h = 1 in Msun/kpc^3.
G = 4.300917270e-6
mass = omega_m * 3 * 0.1**2 / (8 * np.pi * G) * (1e3 * box) ** 3 / n  # Msun/h

# Each dataset is rounded to f32 once (6e-8), and a scaled velocity twice. Positions and velocities are compared with the
# largest of all, since wrapped and small ones have lost digits already.
F32 = 2.5e-7
# The Sun's mass and Newton's constant differ between the tools' tables by up to 2e-4.
TABLES = 3e-4
# swiftsimio rounds each unit to five digits.
DIGITS = 1.5e-4


def close(what, got, want, tolerance):
    got, want = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, not {want.shape}"
    error = np.abs(got - want).max() / np.abs(want).max()
    assert error <= tolerance, f"{what}: off by {error:.3g} of the largest, more than {tolerance:.3g}"
    print(f"{what}: {error:.1e}")


def with_h5py():
    with h5py.File("one/snapshot.hdf5") as file:
        particles, header = file["PartType1"], file["Header"].attrs
        assert particles["Coordinates"].dtype == np.float32 and particles["ParticleIDs"].dtype == np.uint64
        assert (particles["ParticleIDs"][:] == np.arange(n)).all()
        close("h5py positions", particles["Coordinates"], x, 0)
        assert header["NumPart_ThisFile"].tolist() == [0, n, 0, 0, 0, 0] == header["NumPart_Total"].tolist()
        close("h5py box", header["BoxSize"], [box] * 3, 0)
        close("h5py mass", header["MassTable"][1] * 1e10, mass, 1e-6)
        close("h5py redshift", header["Redshift"], [1 / a - 1], 1e-15)
        # As Gadget-4's manual says: physical = value a^a_scaling h^h_scaling to_cgs.
        for name, want, tolerance in [("Coordinates", x * a / h * 3.0856776e24, F32), ("Velocities", v * 1e5, F32)]:
            at = particles[name].attrs
            to_cgs = a ** at["a_scaling"] * h ** at["h_scaling"] * at["to_cgs"]
            close(f"h5py {name} by Gadget-4's attributes", particles[name][:] * to_cgs, want, tolerance)
            to_cgs = at["Conversion factor to physical CGS (including cosmological corrections)"][0]
            close(f"h5py {name} by SWIFT's attributes", particles[name][:] * to_cgs, want, tolerance)
    files = sorted(glob.glob("parts/snapshot.*.hdf5"))
    ids, seen = [], 0
    for name in files:
        with h5py.File(name) as file:
            assert file["Header"].attrs["NumFilesPerSnapshot"] == len(files) > 1
            seen += file["Header"].attrs["NumPart_ThisFile"][1]
            ids.append(file["PartType1/ParticleIDs"][:])
    assert seen == n and (np.sort(np.concatenate(ids)) == np.arange(n)).all()


def with_pynbody():
    import pynbody

    for name, what in [("one/snapshot.hdf5", "one file"), ("parts/snapshot", "parts")]:
        snapshot = pynbody.load(name)
        assert len(snapshot.dm) == len(snapshot) == n
        order = np.argsort(snapshot.dm["iord"])
        assert (snapshot.dm["iord"][order] == np.arange(n)).all()
        close(f"pynbody scale factor, {what}", snapshot.properties["a"], a, 1e-15)
        close(f"pynbody h, {what}", snapshot.properties["h"], h, 0)
        side = snapshot.properties["boxsize"].in_units("Mpc a h^-1", **snapshot.conversion_context())
        close(f"pynbody box, {what}", side, box, TABLES)
        close(f"pynbody positions, {what}", snapshot.dm["pos"].in_units("Mpc a h^-1")[order], x, TABLES)
        close(f"pynbody velocities, {what}", snapshot.dm["vel"].in_units("km s^-1")[order], v, TABLES)
        close(f"pynbody masses, {what}", snapshot.dm["mass"].in_units("Msol h^-1"), np.full(n, mass), TABLES)


def with_swiftsimio():
    import swiftsimio
    import unyt

    parts = sorted(glob.glob("parts/snapshot.*.hdf5"))
    for names, what in [(["one/snapshot.hdf5"], "one file"), (parts, "parts")]:
        snapshots = [swiftsimio.load(name) for name in names]
        ids = np.concatenate([np.asarray(s.dark_matter.particle_ids) for s in snapshots])
        order = np.argsort(ids)
        assert (ids[order] == np.arange(n)).all()
        meta = snapshots[0].metadata
        close(f"swiftsimio redshift, {what}", meta.redshift, 1 / a - 1, 1e-15)
        close(f"swiftsimio scale factor, {what}", meta.scale_factor, a, 0)
        close(f"swiftsimio box, {what}", meta.boxsize.to("Mpc"), [box / h] * 3, DIGITS)
        close(f"swiftsimio H0, {what}", meta.cosmology.H0.to_value("km/(s Mpc)"), 100 * h, DIGITS)
        close(f"swiftsimio Omega_m, {what}", meta.cosmology.Om0, omega_m, 0)
        close(f"swiftsimio mass, {what}", meta.mass_table.dark_matter.to_value("Msun"), mass / h, TABLES)
        positions = [s.dark_matter.coordinates.to_comoving().to_value(unyt.Mpc) for s in snapshots]
        close(f"swiftsimio positions, {what}", np.concatenate(positions)[order], x / h, DIGITS)
        physical = [s.dark_matter.velocities.to_physical().to_value("km/s") for s in snapshots]
        close(f"swiftsimio velocities, {what}", np.concatenate(physical)[order], v, 2 * DIGITS)


def with_yt():
    import yt

    yt.set_log_level(50)
    # yt reads no units of lengths from Gadget's files.
    units = {"length": (1.0, "Mpccm/h")}
    for name, what in [("one/snapshot.hdf5", "one file"), ("parts/snapshot.0.hdf5", "parts")]:
        snapshot = yt.load(name, unit_base=units)
        all_of_it = snapshot.all_data()
        order = np.argsort(all_of_it["PartType1", "ParticleIDs"])
        close(f"yt redshift, {what}", snapshot.current_redshift, 1 / a - 1, 1e-15)
        close(f"yt box, {what}", snapshot.domain_width.to_value("Mpccm/h"), [box] * 3, TABLES)
        positions = all_of_it["PartType1", "particle_position"].to_value("Mpccm/h")[order]
        close(f"yt positions, {what}", positions, x, TABLES)
        velocities = all_of_it["PartType1", "particle_velocity"].to_value("km/s")[order]
        close(f"yt velocities, {what}", velocities, v, TABLES)
        masses = all_of_it["PartType1", "particle_mass"].to_value("Msun/h")
        close(f"yt masses, {what}", masses, np.full(n, mass), TABLES)

    want = json.load(open("groups.json"))
    catalog = yt.load("groups.0.hdf5")
    groups = catalog.all_data()
    order = np.argsort(groups["Group", "GroupLabel"])
    labels = np.argsort(want["label"])
    close("yt groups' redshift", catalog.current_redshift, 1 / a - 1, 1e-15)
    centers = groups["Group", "particle_position"].to_value("Mpccm/h")[order]
    close("yt groups' centers", centers, np.array(want["center"])[labels], TABLES)
    masses = groups["Group", "particle_mass"].to_value("Msun/h")[order]
    close("yt groups' masses", masses, np.array(want["mass"])[labels] * 1e10, TABLES)


def groups_with_h5py():
    want = json.load(open("groups.json"))
    with h5py.File("groups.0.hdf5") as file:
        header, group = file["Header"].attrs, file["Group"]
        count = len(want["label"])
        assert header["Ngroups_ThisFile"] == header["Ngroups_Total"] == count
        assert header["Nids_Total"] == len(want["members"]) == group["GroupLen"][:].sum()
        assert header["NumFiles"] == 1 and header["BoxSize"] == box and header["Time"] == a
        for ours, name in [("label", "GroupLabel"), ("count", "GroupLen"), ("center", "GroupPos"), ("mass", "GroupMass")]:
            close(f"h5py {name}", group[name], want[ours], F32)
        members = file["IDs/ID"][:]
        assert members.tolist() == want["members"]
        close("h5py masses by type", group["GroupMassType"][:].sum(axis=1), want["mass"], F32)
        assert (group["GroupLenType"][:, 1] == want["count"]).all()
        assert (group["GroupOffsetType"][:, 1] == np.cumsum([0] + want["count"][:-1])).all()
        velocity = group["GroupVel"]
        at = velocity.attrs
        to_cgs = a ** at["a_scaling"] * h ** at["h_scaling"] * at["to_cgs"]
        close("h5py GroupVel by Gadget-4's attributes", velocity[:] * to_cgs, np.array(want["velocity"]) * 1e5, F32)
        close("h5py GroupAscale", group["GroupAscale"], [a] * count, F32)


with_h5py()
groups_with_h5py()
with_pynbody()
with_swiftsimio()
with_yt()
print("all agree")
