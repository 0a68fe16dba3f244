#!/usr/bin/env python3
"""make.py: writes the files beside it with numpy and safetensors; file_test.lua reads them.

    pip install numpy ml_dtypes safetensors && cd tests/lua/data && python3 make.py

The files here were made with numpy 2.4.6, ml_dtypes 0.6.0 and safetensors 0.8.0. Element (i, j, k)
of shape (2, 3, 4) is 12i + 4j + k - 8; in u8 files 8 more, in bool files whether it is above 0.
"""

import numpy as np
from numpy.lib import format as npy
import ml_dtypes
from safetensors.numpy import save_file

x = np.arange(24).reshape(2, 3, 4) - 8

for name in ['f8', 'f4', 'f2', 'i4', 'i8']:
    np.save(f'{name}.npy', x.astype('<' + name))
np.save('u1.npy', (x + 8).astype('|u1'))
np.save('b1.npy', x > 0)
np.save('big.npy', x.astype('>f4'))
np.save('fortran.npy', np.asfortranarray(x.astype('<f4')))
np.save('scalar.npy', np.float32(3.5))
np.save('empty.npy', np.zeros((0, 3), '<f4'))
np.save('record.npy', np.zeros(3, [('a', '<f4'), ('b', '<i4')]))
for version in [(2, 0), (3, 0)]:
    with open(f'version{version[0]}.npy', 'wb') as file:
        npy.write_array(file, x.astype('<f4'), version=version)

save_file({
    'f64': x.astype('f8'), 'f32': x.astype('f4'), 'f16': x.astype('f2'), 'i32': x.astype('i4'),
    'bf16': x.astype(ml_dtypes.bfloat16), 'e4m3fn': x.astype(ml_dtypes.float8_e4m3fn),
    'e5m2': x.astype(ml_dtypes.float8_e5m2), 'u8': (x + 8).astype('u1'), 'bool': x > 0,
    'i64': x.astype('i8'), 'empty': np.zeros((0, 3), 'f4'), 'ä "quoted" \\ \n': np.float32([1, 2]),
}, 'all.safetensors', metadata={'made by': 'make.py'})
