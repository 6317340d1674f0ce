#!/usr/bin/env python3
"""Lists the functions that a header of CUDA declares, legacy and per-thread forms too, as rows UNSUPPORTED(name).

usage: declared.py HEADER PREFIX OUTPUT DEPFILE COMPILER…
"""
import re
import subprocess
import sys

header, prefix, output, depfile, *compiler = sys.argv[1:]
source = f"#define __CUDA_API_VERSION_INTERNAL\n#include <{header}>\n"
text = subprocess.run([*compiler, "-E", "-MD", "-MF", depfile, "-MT", output, "-x", "c", "-"], input=source,
                      stdout=subprocess.PIPE, text=True, check=True).stdout
with open(output, "w", encoding="utf-8") as file:
    for name in sorted(set(re.findall(rf"\b({prefix}[A-Z]\w*)\s*\(", text))):
        file.write(f"UNSUPPORTED({name})\n")
