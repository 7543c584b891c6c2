#!/usr/bin/python3
"""Writes tests/golden/npy/: arrays as NumPy itself saves them, for the reader's tests.
Every good array has shape [4, 3, 2] and holds 0, 1, ... 23 in C order (b1: index % 2; u1 alike).
Made with NumPy 1.24.2; run it only to add files: zip archives carry the time of day."""
import os
import numpy as np

out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "npy")
os.makedirs(out, exist_ok=True)
base = np.arange(24).reshape(4, 3, 2)
for dtype in "<f4 >f4 <f8 >f8 <f2 |u1 <i4 >i4 <i8 |b1".split():
    for order in "CF":
        values = base % 2 if dtype == "|b1" else base
        array = np.asarray(values.astype(dtype), order=order)
        name = dtype.replace("<", "le").replace(">", "be").replace("|", "")
        np.save(f"{out}/{name}_{order}.npy", array)
for version in (1, 2, 3):
    with open(f"{out}/version{version}.npy", "wb") as f:
        np.lib.format.write_array(f, base.astype("<f4"), version=(version, 0))
np.save(f"{out}/labels.npy", np.array([0, 1, 2, 1]))
np.save(f"{out}/values.npy", np.array([0.5, 1.5, -2.0, 4.0]))
np.savez(f"{out}/stored.npz", x=base.astype("<f4"), y=np.array([0, 1, 2, 1]))
np.savez_compressed(f"{out}/deflated.npz", x=base.astype("<f4"), y=np.array([0, 1, 2, 1]))
np.savez(f"{out}/four.npz", x=base.astype("<f4"), x2=base.astype("<f4")[::-1], y=np.array([0, 1, 2, 1]),
         y2=np.array([2, 1, 0, 1]), bytes=base.astype("u1"), ids=base.astype("<i8"))
# arrays that must be refused
np.save(f"{out}/bad_object.npy", np.array([1, "a", None, 2], dtype=object), allow_pickle=True)
np.save(f"{out}/bad_complex.npy", base.astype("<c8"))
np.save(f"{out}/bad_record.npy", np.zeros(4, dtype=[("a", "<f4"), ("b", "<i4")]))
np.save(f"{out}/bad_i2.npy", base.astype("<i2"))
np.save(f"{out}/bad_text.npy", np.array(["a", "b", "c", "d"]))
np.save(f"{out}/bad_scalar.npy", np.float32(1))
np.save(f"{out}/bad_empty.npy", np.zeros((0, 3), dtype="<f4"))
np.save(f"{out}/bad_huge_int.npy", np.array([[1, 2 ** 24 + 1], [0, 0], [0, 0], [0, 0]]))
np.save(f"{out}/bad_huge_float.npy", np.array([[1.0, 1e39], [0, 0], [0, 0], [0, 0]]))
np.save(f"{out}/bad_nan.npy", np.array([[1, 2], [3, 4], [5, np.nan], [0, 0]], dtype="<f4"))
