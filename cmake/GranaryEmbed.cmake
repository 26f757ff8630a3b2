# cmake -DFILES=PATH;... -DOUT=FILE -P this: write a C file with the table console_files (server/console_internal.h).
# index.html stands for "/".
set(types html=text/html css=text/css js=text/javascript svg=image/svg+xml)
set(arrays "")
set(rows "")
set(number 0)
foreach(path IN LISTS FILES)
  get_filename_component(name ${path} NAME)
  get_filename_component(extension ${path} LAST_EXT)
  string(SUBSTRING ${extension} 1 -1 extension)
  set(type "")
  foreach(known IN LISTS types)
    if(known MATCHES "^${extension}=(.*)$")
      set(type "${CMAKE_MATCH_1}")
    endif()
  endforeach()
  if(NOT type)
    message(FATAL_ERROR "${path}: no content type is known for .${extension}")
  endif()
  if(name STREQUAL "index.html")
    set(name "")
  endif()
  file(READ ${path} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "static const unsigned char file_${number}[] = {${bytes}};\n")
  string(APPEND rows "    {\"/${name}\", \"${type}\", file_${number}, sizeof file_${number}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUT} "#include \"server/console_internal.h\"\n
${arrays}
const struct console_file console_files[] = {
${rows}};
const size_t console_file_count = sizeof console_files / sizeof *console_files;
")
