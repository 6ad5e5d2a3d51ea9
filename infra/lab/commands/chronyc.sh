# chronyc of a lab node: tracking as comma-separated values; without its service it says what the real one says.
root="$HOTSPARE_HOST_ROOT/var/lib/lab"
read -r _ active _ < "$root/services/chrony.service"
if [ "$active" != active ]; then
  echo "506 Cannot talk to daemon"
  exit 1
fi
case "$*" in
  "-c tracking"|"-n -c tracking"|"-c -n tracking") cat "$root/clock" ;;
  *) echo "Unrecognized command"; exit 1 ;;
esac
