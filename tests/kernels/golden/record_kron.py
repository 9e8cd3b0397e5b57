#!/usr/bin/env python3
"""Records products with numpy.kron in double:

    python3 record_kron.py > kron.h

Element number i of x is sin(i), of factor number f it is cos(i + f), so that a test can make them
again.
"""

import numpy as np

CASES = [([(2, 2), (3, 3), (4, 4)], 2), ([(2, 3), (3, 1), (1, 4)], 3), ([(5, 2)], 1)]


def main():
    print("#pragma once")
    print(f"/** @file Written by record_kron.py with NumPy {np.__version__}. */")
    print("#include <cstdint>\n#include <vector>\n\nnamespace bs::test {\n")
    print("struct KronGolden {\n  std::vector<std::vector<int64_t>> factors;\n  int64_t rows;")
    print("  std::vector<double> first_fastest, first_slowest;\n};\n\n// clang-format off")
    print("inline const std::vector<KronGolden> kron_golden = {")
    for shapes, rows in CASES:
        factors = [np.cos(np.arange(p * q) + f).reshape(p, q) for f, (p, q) in enumerate(shapes)]
        width = int(np.prod([p for p, _ in shapes]))
        x = np.sin(np.arange(rows * width)).reshape(rows, width)
        results = []
        for order in (factors[::-1], factors):
            dense = np.ones((1, 1))
            for factor in order:
                dense = np.kron(dense, factor)
            results.append(", ".join(repr(float(v)) for v in (x @ dense).ravel()))
        extents = ", ".join(f"{{{p}, {q}}}" for p, q in shapes)
        print(f"    {{{{{extents}}}, {rows},\n     {{{results[0]}}},\n     {{{results[1]}}}}},")
    print("};\n// clang-format on\n\n}  // namespace bs::test")


if __name__ == "__main__":
    main()
