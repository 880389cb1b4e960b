#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cfg-finalize --junit: a well-formed report, whatever the inputs hold.
# shellcheck source=test/lib.sh
. test/lib.sh

count() { grep -c "$1" "$T/report.xml"; }

# Whether a file is well-formed XML 1.0, as far as these reports go.
cat >"$T/wellformed.pl" <<'END'
use Encode;
local $/;
my $t = decode("UTF-8", scalar <STDIN>, Encode::FB_CROAK);
die "a character that XML cannot hold" if
	$t =~ /[^\t\n\r\x20-\x{d7ff}\x{e000}-\x{fffd}\x{10000}-\x{10ffff}]/;
$t =~ s/^<\?xml version="1\.0" encoding="UTF-8"\?>\n// or die "no declaration";
my @open;
while ($t =~ /\G(?:([^<&]+)|&(?:amp|lt|gt|quot|#13);|<(\/?)([a-z-]+)((?: [a-z]+="(?:[^<&"]|&(?:amp|lt|gt|quot|#13);)*")*)>)/gc) {
	next unless defined $3;
	if ($2) { pop(@open) eq $3 or die "</$3>" } else { push @open, $3 }
}
die "at " . substr($t, pos($t) // 0, 40) if (pos($t) // length $t) != length $t;
die "open: @open" if @open;
END

well_formed() {
	perl "$T/wellformed.pl" <"$1" &&
		if command -v xmllint >/dev/null; then xmllint --noout "$1"; fi
}

mkdir "$T/in"
sed 's/num_layers = 8/num_layers = 4/' test/data/whole.inc >"$T/in/good.cfg"
sed 's/num_layers = 8/num_layers = 9/' test/data/whole.inc >"$T/in/bad.cfg"
run cfg-finalize --junit "$T/report.xml" --world 4 "$T/in" "$T/none.cfg"
is "the exit code is the worst" $rc 2
ok "the report is well-formed" well_formed "$T/report.xml"
like "it counts" "$(<"$T/report.xml")" \
	'<testsuite name="cfg-finalize" tests="3" failures="1" errors="1">'
is "a test case for each input" "$(count '^<testcase ')" 3
like "a failure has the findings" "$(<"$T/report.xml")" \
	'in/bad.cfg">.<failure type="invalid" message="[^"]*bad.cfg: invalid, [0-9]+ error[^>]*>[^<]*place-[a-z]+\]'
like "an error says what cannot be read" "$(<"$T/report.xml")" \
	'none.cfg">.<error type="unreadable" message="[^"]*none.cfg: unreadable">[^<]*conf-unreadable'
like "a valid one has its summary as output" "$(<"$T/report.xml")" \
	'good.cfg">.<system-out>[^<]*good.cfg: valid'
run cfg-finalize --junit "$T/report.xml" --json "$T/in/bad.cfg"
like "with --json the report is the same" "$(<"$T/report.xml")" 'message="[^"]*bad.cfg: invalid, '
is "and the report before is replaced" "$(count '^<testcase ')" 1
mkdir "$T/empty"
run cfg-finalize --junit "$T/report.xml" "$T/empty" "$T/in/good.cfg"
like "an operand with nothing in it is an error, too" "$(<"$T/report.xml")" \
	'tests="2" failures="0" errors="1"'
run cfg-finalize --junit "$T/report.xml" -o "$T/in/good.cfg" "$T/in/good.cfg"
like "a file that is not written is an error" "$(<"$T/report.xml")" \
	'<error type="output" message="[^"]*exists; --force replaces it"'
run cfg-finalize --junit "$T/no/dir.xml" "$T/in/good.cfg"
is "a report that cannot be written exits 9" $rc 9

# whatever bytes
perl -e 'print "shape: {\n"; print chr($_), "\"", chr($_), "\"\n" for 1 .. 255' \
	>"$T/in/bytes.cfg"
printf 'shape: { normalization = "<&>\"\001\177\303\377]]>\357\277\277"; };' >"$T/in/text.cfg"
printf 'shape: {' >"$T/in/\001<&\"'\377 ]]>.cfg"
cp "$T/in/text.cfg" "$T/in/"$'\001\n<&"\'\377\355\240\200]]>.cfg'
run cfg-finalize --junit "$T/report.xml" "$T/in"
is "inputs of any bytes" "$(count '^<testcase ')" 6
ok "make a report that is well-formed" well_formed "$T/report.xml"
for ((i = 1; i < 40; i++)); do
	{ echo 'shape: { "' && head -c $((300 * i)) "$BIN/cfg-finalize" | tail -c 300 | tr -d '\0'; } \
		>"$T/in/r$i.cfg"
done
run cfg-finalize --junit "$T/report.xml" "$T/in"
ok "so does a program's text" well_formed "$T/report.xml"
done_testing
