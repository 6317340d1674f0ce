#!/usr/bin/env python3
"""Lists the functions that cuda_runtime_api.h declares, per-thread forms too, as rows UNSUPPORTED(name).

usage: runtime_declared.py OUTPUT DEPFILE COMPILER…
"""
import re
import subprocess
import sys

output, depfile, *compiler = sys.argv[1:]
source = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda_runtime_api.h>\n"
text = subprocess.run([*compiler, "-E", "-MD", "-MF", depfile, "-MT", output, "-x", "c", "-"], input=source,
                      stdout=subprocess.PIPE, text=True, check=True).stdout
with open(output, "w", encoding="utf-8") as file:
    for name in sorted(set(re.findall(r"\b(cuda[A-Z]\w*)\s*\(", text))):
        file.write(f"UNSUPPORTED({name})\n")
