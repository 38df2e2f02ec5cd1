"""Linear and nonlinear power spectra of CAMB, for the tests of halofit: python halofit.py > ../goldens/halofit.json (camb 2.0.5, two minutes)."""

import contextlib
import json
import sys

import camb

K = [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0]
BACKGROUND = {"h": 0.6766, "Omega_m": 0.3111, "Omega_b": 0.04897, "n_s": 0.9665, "N_eff": 3.046}


def digits(values):
    return [float(f"{value:.6e}") for value in values]


def parameters(redshifts, w):
    h, omega_m, omega_b, n_s, neutrinos = BACKGROUND.values()
    p = camb.CAMBparams()
    baryons = omega_b * h * h
    # Neutrinos without mass: the formula of the fit has none.
    p.set_cosmology(H0=100 * h, ombh2=baryons, omch2=omega_m * h * h - baryons, mnu=0, num_massive_neutrinos=0, nnu=neutrinos, TCMB=2.7255)
    p.set_dark_energy(w=w)
    p.InitPower.set_params(As=2.105e-9, ns=n_s, pivot_scalar=0.05)
    p.set_matter_power(redshifts=redshifts, kmax=100, nonlinear=False)
    p.set_accuracy(AccuracyBoost=2)
    return p


def case(redshifts, w):
    p = parameters(redshifts, w)
    linear = camb.get_results(p)
    k, _, table = linear.get_matter_power_spectrum(minkh=1e-4, maxkh=50, npoints=250)
    p.NonLinear = camb.model.NonLinear_both
    p.NonLinearModel.set_params(halofit_version="takahashi")
    nonlinear = camb.get_results(p)
    spectra = [r.get_matter_power_interpolator(nonlinear=n) for r, n in [(linear, False), (nonlinear, True)]]
    epochs = [{"z": z, "linear": digits(spectra[0].P(z, K)), "nonlinear": digits(spectra[1].P(z, K))} for z in redshifts]
    return {**BACKGROUND, "w0": w, "table_k": digits(k), "table_P": digits(table[0]), "k": K, "epochs": epochs}


with contextlib.redirect_stdout(sys.stderr):  # CAMB prints notes
    goldens = {"program": f"CAMB {camb.__version__}", "cases": [case([0.0, 1.0, 2.0], -1.0), case([0.0, 0.5, 1.0], -0.8)]}
print(json.dumps(goldens))
