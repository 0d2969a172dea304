# The bundle's bubblewrap before the machine's, if it was unpacked here and runs here: it is that of another system.
bundled=$PWD/bubblewrap
if LD_LIBRARY_PATH="$bundled/lib" "$bundled/bin/bwrap" --version >/dev/null 2>&1; then
  PATH="$bundled/bin:$PATH"
  LD_LIBRARY_PATH="$bundled/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export PATH LD_LIBRARY_PATH
fi
