# modinfo of a lab node: the version of a module that is loaded.
field=
if [ "$1" = "-F" ]; then field="$2"; shift 2; fi
version="$HOTSPARE_HOST_ROOT/sys/module/$1/version"
if [ ! -r "$version" ]; then
  echo "modinfo: ERROR: Module $1 not found." >&2
  exit 1
fi
case "$field" in
  version) cat "$version" ;;
  "") echo "version:        $(cat "$version")" ;;
esac
