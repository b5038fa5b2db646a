# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Turns the compile-time policy of Linux's siw into module parameters, in the lab's own copy of the source.

One guest can then play every role of siw by writing /sys/module/siw/parameters. Defaults stay as they are upstream and
nothing else is changed. An edit whose line is not found exactly once is an error: the source is another one than this
was written for.
"""

import pathlib

FOLDER = pathlib.PurePath("drivers/infiniband/sw/siw")


class EditError(Exception):
    """The source does not read as expected."""


# name, its type as module_param() calls it, its line upstream without `const`.
PARAMETERS = [
    ("siw_main.c", "zcopy_tx", "bool", "const bool zcopy_tx = true;"),
    ("siw_main.c", "try_gso", "bool", "const bool try_gso;"),
    ("siw_main.c", "loopback_enabled", "bool", "const bool loopback_enabled = true;"),
    ("siw_main.c", "mpa_crc_required", "bool", "const bool mpa_crc_required;"),
    ("siw_main.c", "mpa_crc_strict", "bool", "const bool mpa_crc_strict;"),
    ("siw_main.c", "siw_tcp_nagle", "bool", "const bool siw_tcp_nagle;"),
    ("siw_main.c", "mpa_version", "byte", "u_char mpa_version = MPA_REVISION_2;"),
    ("siw_main.c", "peer_to_peer", "bool", "const bool peer_to_peer;"),
    # In the byte order of the wire: 0x0080 offers the Write as RTR, 0x0040 the Read, their sum both.
    ("siw_cm.c", "rtr_type", "ushort",
     "static __be16 rtr_type = MPA_V2_RDMA_READ_RTR | MPA_V2_RDMA_WRITE_RTR;"),
    ("siw_cm.c", "relaxed_ird_negotiation", "bool", "static const bool relaxed_ird_negotiation = true;"),
]

EXTERNS = ["zcopy_tx", "try_gso", "loopback_enabled", "mpa_crc_required", "mpa_crc_strict", "siw_tcp_nagle",
           "peer_to_peer"]


def _replace_line(text, file, old, new):
    lines = text.split("\n")
    if lines.count(old) != 1:
        raise EditError(f"{FOLDER / file}: {lines.count(old)} lines read '{old}', expected exactly one")
    lines[lines.index(old)] = new
    return "\n".join(lines)


def edited(texts):
    """The edited files for `texts`, both name -> content."""
    texts = dict(texts)
    for file, name, kind, line in PARAMETERS:
        writable = line.replace("const ", "")
        texts[file] = _replace_line(texts[file], file, line, f"{writable}\nmodule_param({name}, {kind}, 0644);")
    for name in EXTERNS:
        texts["siw.h"] = _replace_line(texts["siw.h"], "siw.h", f"extern const bool {name};", f"extern bool {name};")
    return texts


def edit_source(tree):
    """Edits the files below the kernel source `tree` in place."""
    files = {name: tree / FOLDER / name for name in ("siw_main.c", "siw_cm.c", "siw.h")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    for name, text in edited(texts).items():
        files[name].write_text(text, encoding="utf-8")
