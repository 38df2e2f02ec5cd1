"""Arrays whose mask or unit NumPy would drop."""

import numpy as np


def plain(values, name):
    """Return `values`; raise an error if a plain array would lose a mask or a unit.

    Raises
    ------
    TypeError
        If elements are masked, or `values` is an astropy quantity with a unit.
    """
    if np.ma.is_masked(values):
        raise TypeError(
            f"{name} has masked elements, which would count; pass the others ({name}.compressed(), or rows of {name}.data) "
            f"or fill them ({name}.filled(..))"
        )
    if hasattr(values, "to_value") and str(getattr(values, "unit", "")):
        raise TypeError(f"{name} has the unit {values.unit}, which would be lost; pass numbers, {name}.to_value(unit)")
    return values
