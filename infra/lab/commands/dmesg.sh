# The kernel log of a lab node: this boot's lines, and with --follow the new ones for ever.
log="$HOTSPARE_HOST_ROOT/var/log/lab/kernel.log"
from=+1
follow=
for option in "$@"; do
  case "$option" in
    --follow|-w) follow="-s 0.1 -f" ;;
    --follow-new|-W) follow="-s 0.1 -f"; from=0 ;;
    --kernel|-k|--nopager|-P|--color=never|-L=never) ;;
    *) echo "dmesg: unrecognized option '$option'" >&2; exit 1 ;;
  esac
done
exec tail -n "$from" $follow "$log"
