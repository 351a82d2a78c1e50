#!/usr/bin/env bash
# A group member by curl: `curl_member.sh URL GROUP TOPIC`. It says what python_member.py says.
set -u
url=$1/api/v1 group=$2 topic=$3
member="" generation=""

# The first value of a member in flat JSON.
value() { grep -o "\"$1\":[^,}]*" | head -1 | cut -d: -f2- | tr -d '" '; }
call() { curl -s -o "$answer" -w '%{http_code}' -H 'Content-Type: application/json' "$@"; }

answer=$(mktemp)
leave() {
  [ -n "$member" ] && call -X DELETE "$url/groups/$group/members/$member" >/dev/null
  rm -f "$answer"
  exit 0
}
trap leave TERM

join() {
  local status body
  while :; do
    body="{\"topics\":[\"$topic\"],\"assignor\":\"roundrobin\",\"session_timeout_ms\":3000,\"rebalance_timeout_ms\":3000"
    body+=",\"client_id\":\"curl\",\"wait_ms\":2000,\"member_id\":\"$member\"}"
    status=$(call -d "$body" "$url/groups/$group/members")
    case $status in
      200 | 202) member=$(value member_id <"$answer") ;;
      404 | 409) member="" ;;
      *) sleep 0.2 ;;
    esac
    [ "$status" = 200 ] || continue
    generation=$(value generation_id <"$answer")
    while :; do
      status=$(call -d "{\"generation_id\":$generation,\"wait_ms\":2000}" "$url/groups/$group/members/$member:sync")
      [ "$status" = 202 ] || break
    done
    [ "$status" = 200 ] && break
    [ "$status" = 404 ] && member=""
    sleep 0.05
  done
  partitions=$(grep -o '"partition":[0-9]*' "$answer" | cut -d: -f2)
  echo "{\"assigned\":[$(echo $partitions | tr ' ' ,)]}"
  call "$url/groups/$group/offsets" >/dev/null
  for p in $partitions; do
    next[p]=$(grep -o "\"partition\":$p,\"next_offset\":[0-9]*" "$answer" | cut -d: -f3)
    next[p]=${next[p]:-0}
  done
}

declare -a next
join
while :; do
  for p in $partitions; do
    status=$(call "$url/topics/$topic/partitions/$p/records?offset=${next[p]}&limit=100&wait_ms=20&encoding=utf8")
    [ "$status" = 200 ] || continue
    to=$(value next_offset <"$answer")
    [ "$to" = "${next[p]}" ] && continue
    grep -o '"offset":[0-9]*\|"value":"[^"]*"' "$answer" | paste -d' ' - - |
      sed "s/\"offset\":\([0-9]*\) \"value\":\(\"[^\"]*\"\)/{\"read\":[$p,\1,\2]}/"
    body="{\"offsets\":[{\"topic\":\"$topic\",\"partition\":$p,\"next_offset\":$to}]"
    body+=",\"member_id\":\"$member\",\"generation_id\":$generation}"
    status=$(call -X PATCH -d "$body" "$url/groups/$group/offsets")
    case $status in
      2*) next[p]=$to && echo "{\"committed\":{\"$p\":$to}}" ;;
      *) echo "{\"refused\":\"$status\"}" ;;
    esac
  done
  status=$(call -d "{\"generation_id\":$generation}" "$url/groups/$group/members/$member:heartbeat")
  case $status in
    2*) ;;
    404) member="" && join ;;
    *) join ;;
  esac
  [ -n "$partitions" ] || sleep 0.1
done
