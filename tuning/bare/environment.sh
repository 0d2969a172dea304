# The bundle's bubblewrap before the machine's, if it was unpacked here.
if [ -x bubblewrap/bin/bwrap ]; then
  PATH="$PWD/bubblewrap/bin:$PATH"
  LD_LIBRARY_PATH="$PWD/bubblewrap/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export PATH LD_LIBRARY_PATH
fi
