package policy

import (
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
)

func TestKeyText(t *testing.T) {
	e := secretEngine(t, spillgate.NewMemory())
	attrs := Attrs{"header.authorization": secretToken, "client.ip": "203.0.113.7"}
	print := e.Fingerprint(Attribute{Kind: Header, Name: "authorization"}, secretToken)
	for rule, want := range map[string]string{
		"bearer": "header.authorization=" + print, "mixed": "host=- attr.pin=-", "companion": "client.ip=203.0.113.7", "nobody's": "",
	} {
		if got := e.KeyText(rule, attrs); got != want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
	long := Attrs{"host": strings.Repeat("x", 1000)}
	if got := e.KeyText("mixed", long); len(got) > 256 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
