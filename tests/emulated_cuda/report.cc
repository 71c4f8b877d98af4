#include "report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace emulated {
namespace {

void write(const char* format, std::va_list values) {
  char line[2048];
  int length = std::snprintf(line, sizeof line, "emulated CUDA, process %d: ", getpid());
  length += std::vsnprintf(line + length, sizeof line - static_cast<std::size_t>(length) - 1, format, values);
  length = std::min(length, static_cast<int>(sizeof line) - 2);
  line[length++] = '\n';
  if (::write(STDERR_FILENO, line, static_cast<std::size_t>(length)) < 0) std::abort();
}

}  // namespace

// NOLINTBEGIN(modernize-avoid-variadic-functions): as printf, whose formats the compiler checks
void say(const char* format, ...) {
  std::va_list values;
  va_start(values, format);
  write(format, values);
  va_end(values);
}

void fatal(const char* format, ...) {
  std::va_list values;
  va_start(values, format);
  write(format, values);
  va_end(values);
  std::abort();
}
// NOLINTEND(modernize-avoid-variadic-functions)

}  // namespace emulated
