#!/usr/bin/env python3
"""Lists the forms of the driver's functions: for each name that cuGetProcAddress is asked for, what symbol came with
which version of CUDA, as rows DRIVER_FORM(name, version, symbol, for the per-thread default stream).

usage: driver_forms.py OUTPUT HEADER…    cudaTypedefs.h and its like, which name them PFN_<name>_v<version>
"""
import collections
import re
import sys

output, *headers = sys.argv[1:]
forms = collections.defaultdict(set)
for header in headers:
    with open(header, encoding="utf-8") as file:
        for name, version, ending in re.findall(r"\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(?:_(ptsz|ptds))?\)", file.read()):
            forms[name].add((int(version), ending))
with open(output, "w", encoding="utf-8") as file:
    for name, versions in sorted(forms.items()):
        plain = sorted(version for version, ending in versions if not ending)
        for version, ending in sorted(versions):
            # The second form of a function ends in _v2, and so on; the per-thread one is that of its version.
            number = sum(other <= version for other in plain)
            symbol = name + (f"_v{number}" if number > 1 else "") + (f"_{ending}" if ending else "")
            file.write(f"DRIVER_FORM({name}, {version}, {symbol}, {int(bool(ending))})\n")
