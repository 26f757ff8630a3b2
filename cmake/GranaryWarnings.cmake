# One interface target carries the flags of every translation unit of Granary.
add_library(granary_flags INTERFACE)
target_compile_definitions(granary_flags INTERFACE _GNU_SOURCE GRANARY_VERSION="${PROJECT_VERSION}")
# Costly assertions: the state table of the cache after each locked section.
target_compile_definitions(granary_flags INTERFACE $<$<CONFIG:Debug>:GRANARY_CHECK>)
target_compile_options(granary_flags INTERFACE
  -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
  -Wno-unused-parameter -fno-strict-aliasing)
target_include_directories(granary_flags INTERFACE ${PROJECT_SOURCE_DIR}/cachecore ${PROJECT_SOURCE_DIR})
if(GRANARY_WERROR)
  target_compile_options(granary_flags INTERFACE -Werror)
endif()

# What makes an overflow a stop and not an entry. A sanitizer checks what fortified functions check, and better.
include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported()
set(branch_protection "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|i.86")
  set(branch_protection -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64")
  set(branch_protection -mbranch-protection=standard)
endif()
foreach(flag IN ITEMS -fstack-protector-strong -fstack-clash-protection ${branch_protection})
  string(MAKE_C_IDENTIFIER "GRANARY_HAS${flag}" has)
  check_c_compiler_flag(${flag} ${has})
  if(${has})
    target_compile_options(granary_flags INTERFACE ${flag})
  endif()
endforeach()
if(NOT GRANARY_SANITIZE AND NOT GRANARY_FUZZ)
  target_compile_options(granary_flags INTERFACE $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>)
endif()
target_link_options(granary_flags INTERFACE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)

if(GRANARY_SANITIZE)
  # -O1: unoptimized, the tests take twice as long and prove no more. -g1: reports need functions and lines alone, and
  # it compiles in four fifths of the time. gcc warns of what is not there in instrumented and optimized code; the
  # release tree looks for it.
  target_compile_options(granary_flags INTERFACE -O1 -g1 -fsanitize=${GRANARY_SANITIZE} -fno-omit-frame-pointer
    $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-format-truncation;-Wno-restrict>)
  target_link_options(granary_flags INTERFACE -fsanitize=${GRANARY_SANITIZE})
  # 170 test programs: gold links one in a third of the time.
  include(CheckLinkerFlag)
  check_linker_flag(C -fuse-ld=gold GRANARY_HAS_GOLD)
  if(GRANARY_HAS_GOLD AND NOT GRANARY_FUZZ)
    target_link_options(granary_flags INTERFACE -fuse-ld=gold)
  endif()
  if(GRANARY_SANITIZE MATCHES undefined)
    target_compile_options(granary_flags INTERFACE -fno-sanitize-recover=undefined)
    if(NOT GRANARY_LONG_TESTS)
      # Checks of every pointer, a quarter of the compilation. The address sanitizer stops at null and outside of
      # objects, too.
      target_compile_options(granary_flags INTERFACE -fno-sanitize=null,object-size,pointer-overflow)
    endif()
  endif()
endif()
if(GRANARY_FUZZ)
  # Coverage for the fuzzer in every object; the engine itself is linked into the fuzz targets only.
  target_compile_options(granary_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
