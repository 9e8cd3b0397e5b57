"""make_wheel.py VERSION PACKAGE LIBRARY FOLDER: packs the Python package and libbs_c into a wheel.

The platform's tag names no glibc: such a wheel is for machines like the one it was made on.
"""

import base64
import hashlib
import pathlib
import sys
import sysconfig
import zipfile

METADATA = """Metadata-Version: 2.1
Name: bs
Version: {version}
Summary: Block-sparse products, attention, LSTM, transducer loss and convolution
License: BSD-3-Clause
Requires-Python: >=3.9
"""
WHEEL = """Wheel-Version: 1.0
Generator: make_wheel
Root-Is-Purelib: false
Tag: {tag}
"""


def main(version, package, library, folder):
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"py3-none-{platform}"
    info = f"bs-{version}.dist-info"
    files = {f"bs/{p.name}": p.read_bytes() for p in sorted(pathlib.Path(package).glob("*.py"))}
    files["bs/libbs_c.so"] = pathlib.Path(library).read_bytes()
    files[f"{info}/METADATA"] = METADATA.format(version=version).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = pathlib.Path(folder, f"bs-{version}-{tag}.whl")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)  # of no date: the same content gives the same bytes
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, compresslevel=1)  # most of it is compressed
    print(wheel)


if __name__ == "__main__":
    main(*sys.argv[1:])
