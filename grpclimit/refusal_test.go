package grpclimit_test

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Every refusal has an id, which its client and the log line have alike, and the
// line says why.
func TestRefusalsHaveAnID(t *testing.T) {
	once := policy.Rule{Name: "once", Limit: limit(t, "1/h burst 1")}
	p, err := policy.Compile([]policy.Rule{once})
	if err == nil {
		p, err = p.WithOverrides([]policy.Override{{Deny: true, Match: match(t, "method", "POST"), Source: "f:9", Reason: "scans", Owner: "ops"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	closed := engineOf(t, policy.Rule{Name: "held", Limit: limit(t, "1/10s burst 1"), Delay: policy.Delay{Most: policy.MaxDelay, Queue: 9}})
	closed.Close()
	for name, c := range map[string]struct {
		engine *policy.Engine
		code   codes.Code
		log    string
	}{
		"a limit":            {engineOf(t, once), codes.ResourceExhausted, `msg="call refused" rule=once why="over limit" key=* code=RESOURCE_EXHAUSTED`},
		"a message":          {engineOf(t, policy.Rule{Name: "m", Unit: "messages", Limit: limit(t, "1/h burst 1")}), codes.ResourceExhausted, `rule=m why="over limit"`},
		"a rule that denies": {engineOf(t, policy.Rule{Name: "shut", Deny: true}), codes.PermissionDenied, `rule=shut why="denied by rule" key=* code=PERMISSION_DENIED`},
		"a missing part": {engineOf(t, policy.Rule{Name: "user", Key: key(t, "user"), Limit: limit(t, "1/h"), Missing: policy.Refuse}),
			codes.PermissionDenied, `rule=user why="key incomplete"`},
		"an override": {policy.NewEngine(p, spillgate.NewMemory()), codes.PermissionDenied, `why=blocked`},
		"a store that is down": {engineOn(t, &scripted{errors.New("broken")}, policy.Rule{Name: "a", Limit: limit(t, "1/s"), OnFault: policy.Shut}),
			codes.Unavailable, `msg="call not decided"`},
		"a stop": {closed, codes.Unavailable, `msg="call not decided"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cl := serve(t, &service{}, limited(c.engine, grpclimit.Messages("messages"), grpclimit.Logger(slog.New(slog.NewTextHandler(&out, nil)))))
			var got *status.Status
			if name == "a message" {
				_, got = echo(t.Context(), t, cl, 2)
			} else if got = call(t.Context(), cl); got.Code() == codes.OK {
				got = call(t.Context(), cl)
			}
			id, log := idOf(got), out.String()
			if got.Code() != c.code || !regexp.MustCompile("^[0-9a-f]{16}$").MatchString(id) {
				t.Errorf("%v, id %q", got, id)
			}
			if !strings.Contains(log, c.log) || !strings.Contains(log, " refusal_id="+id+" ") {
				t.Errorf("log %s", log)
			}
			if name == "an override" && (strings.Contains(got.Message(), "rule") || !strings.Contains(log, "override=f:9 reason=scans owner=ops retry_after=never")) {
				t.Errorf("%v, log %s", got, log)
			}
		})
	}
}
