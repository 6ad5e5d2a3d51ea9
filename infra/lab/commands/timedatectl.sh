# timedatectl of a lab node: whether the kernel counts the clock as synchronised.
leap=$(cut -d, -f14 "$HOTSPARE_HOST_ROOT/var/lib/lab/clock")
synchronised=yes
[ "$leap" = "Not synchronised" ] && synchronised=no
case "$*" in
  *--value*) echo "$synchronised" ;;
  show*) echo "NTP=yes"; echo "NTPSynchronized=$synchronised" ;;
  *) echo "System clock synchronized: $synchronised" ;;
esac | case "$*" in *NTPSynchronized*) grep -v '^NTP=' ;; *) cat ;; esac
