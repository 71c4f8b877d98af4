"""Compiles Fairring's device kernels by NVRTC, which needs neither a CUDA toolkit nor a device, and writes the images
as a C++ source (device_images.h).

    python csrc/kernels/device_images.py --nvrtc
    python csrc/kernels/device_images.py device_images.cc "$NVRTC"

The first command prints the file of the oldest NVRTC beside this Python, or nothing: torch's CUDA wheels bring one, or
the wheel nvidia-cuda-nvrtc-cu12. An older driver loads what an older NVRTC has made. The second command takes that
file. Without one the source has no images.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

KERNELS = Path(__file__).parent
# One of each generation, which later ones of it run too, and PTX for all others.
CUBINS, PTX = (80, 90, 100, 120), 80
# NVRTC has no standard library. This is what the kernels need of it, and what else their headers name.
STANDARD = {
    "cstddef": "#pragma once\nnamespace std {\n"
    "using size_t = decltype(sizeof(0)); enum class byte : unsigned char {}; }",
    "cstdint": "#pragma once\nnamespace std {\n"
    "using int8_t = signed char; using int16_t = short; using int32_t = int; using int64_t = long;\n"
    "using uint8_t = unsigned char; using uint16_t = unsigned short; using uint32_t = unsigned;\n"
    "using uint64_t = unsigned long; using uintptr_t = unsigned long; }",
    "span": "#pragma once\nnamespace std { template <class T> class span; }",
    "type_traits": "#pragma once\nnamespace std { template <class T> using make_unsigned_t = T; }",
}


class Nvrtc:
    """The library."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._library = ctypes.CDLL(str(file))
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)

    def generations(self) -> list[int]:
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        return list(numbers)

    def compile(self, kind: str, generation: int) -> bytes:
        """kind: "CUBIN" or "PTX"."""
        program = ctypes.c_void_p()
        headers = [text.encode() for text in STANDARD.values()]
        names = [name.encode() for name in STANDARD]
        self._call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            (KERNELS / "device_kernels.cu").read_bytes(),
            b"device_kernels.cu",
            len(names),
            (ctypes.c_char_p * len(names))(*headers),
            (ctypes.c_char_p * len(names))(*names),
        )
        form = "sm" if kind == "CUBIN" else "compute"
        # Without contraction, so that the bits are the processor's.
        options = [f"-arch={form}_{generation}", "-std=c++20", "--fmad=false", f"-I{KERNELS.parent}", "-default-device"]
        encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if self._library.nvrtcCompileProgram(program, len(options), encoded) != 0:
            sys.exit(f"NVRTC {self.version} for {form}_{generation}:\n{self._result('ProgramLog', program).decode()}")
        return self._result(kind, program)

    def _result(self, kind: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{kind}", program, text)
        return text.raw

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            sys.exit(f"{name}: error {result} of NVRTC")


def oldest_nvrtc() -> Nvrtc | None:
    folders = [Path(folder) for folder in sys.path if folder]
    files = [file for folder in folders for file in folder.glob("nvidia/*/lib/libnvrtc.so.1[2-9]")]
    files += Path("/usr/local/cuda/lib64").glob("libnvrtc.so.1[2-9]")
    return min((Nvrtc(file) for file in files), key=lambda library: library.version, default=None)


def literal(image: bytes) -> str:
    """Octal, which unlike hexadecimal ends after three digits."""
    lines = (image[at : at + 64] for at in range(0, len(image), 64))
    return "\n".join('    "' + "".join(f"\\{byte:03o}" for byte in line) + '"' for line in lines)


def main() -> None:
    if sys.argv[1] == "--nvrtc":
        oldest = oldest_nvrtc()
        print(oldest.file if oldest else "")
        return
    nvrtc = Nvrtc(Path(sys.argv[2])) if sys.argv[2] else None
    bodies, entries = [], []
    if nvrtc is None:
        print("No NVRTC: building without kernels for CUDA devices (pip install 'nvidia-cuda-nvrtc-cu12==12.8.*')")
    else:
        images = [(one, False, nvrtc.compile("CUBIN", one)) for one in CUBINS if one in nvrtc.generations()]
        images.append((PTX, True, nvrtc.compile("PTX", PTX)))
        bodies = [
            f"alignas(16) constexpr char kImage{at}[] =\n{literal(image)};\n\n" for at, (*_, image) in enumerate(images)
        ]
        entries = [
            f"    {{{one}, {str(is_ptx).lower()}, {{kImage{at}, {len(image)}}}}},\n"
            for at, (one, is_ptx, image) in enumerate(images)
        ]
        made = ", ".join(f"{'PTX of ' * is_ptx}sm_{one} {len(image)} B" for one, is_ptx, image in images)
        print(f"Kernels for CUDA devices by NVRTC {nvrtc.version[0]}.{nvrtc.version[1]}: {made}")
    array = f"const std::array<DeviceImage, {len(entries)}> kImages{{{{\n{''.join(entries)}}}}};\n" if entries else ""
    given = "kImages" if entries else "{}"
    Path(sys.argv[1]).write_text(
        "// Written by device_images.py.\n"
        '#include "kernels/device_images.h"\n\n'
        "#include <array>\n\n"
        f"namespace fairring {{\nnamespace {{\n\n{''.join(bodies)}{array}\n}}  // namespace\n\n"
        f"std::span<const DeviceImage> deviceImages() {{ return {given}; }}\n\n}}  // namespace fairring\n"
    )


if __name__ == "__main__":
    main()
