# systemctl of a lab node: show and is-active, from one file a unit that holds its load state, active state and sub-state.
state="$HOTSPARE_HOST_ROOT/var/lib/lab/services"
verb=
wanted=
units=
while [ $# -gt 0 ]; do
  case "$1" in
    -p|--property) wanted="$wanted,$2"; shift ;;
    -p*) wanted="$wanted,${1#-p}" ;;
    --property=*) wanted="$wanted,${1#--property=}" ;;
    --no-pager|--no-legend|-q|--quiet|--value) ;;
    -*) echo "systemctl: unrecognized option '$1'" >&2; exit 1 ;;
    *) if [ -z "$verb" ]; then verb="$1"; else units="$units $1"; fi ;;
  esac
  shift
done

read_unit() {
  case "$1" in *.*) id="$1" ;; *) id="$1.service" ;; esac
  load=not-found active=inactive sub=dead
  if [ -r "$state/$id" ]; then read -r load active sub < "$state/$id"; fi
  if [ "$id" = chronyd.service ] && [ "$load" = loaded ]; then id=chrony.service; fi
}

show() {
  case "$wanted," in ,|*",$1,"*) echo "$1=$2" ;; esac
}

status=0
first=yes
case "$verb" in
  show)
    for unit in $units; do
      [ "$first" = yes ] || echo
      first=no
      read_unit "$unit"
      show Id "$id"
      show LoadState "$load"
      show ActiveState "$active"
      show SubState "$sub"
    done ;;
  is-active)
    status=3
    for unit in $units; do
      read_unit "$unit"
      echo "$active"
      [ "$active" = active ] && status=0
    done ;;
  *) echo "Unknown command verb $verb." >&2; exit 1 ;;
esac
exit $status
