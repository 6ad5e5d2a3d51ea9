# nv-fabricmanager of a lab node: its version.
case "$1" in
  -v|--version) echo "Fabric Manager version is : $(cat "$HOTSPARE_HOST_ROOT/var/lib/lab/fabric_manager_version")" ;;
  *) echo "nv-fabricmanager: only --version is here" >&2; exit 1 ;;
esac
