package grpclimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
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

// A rule that says headers: off tells who it refuses its name and the wait, and
// no number of its limit.
func TestHiddenRulesTellNoNumbers(t *testing.T) {
	hidden := policy.Rule{Name: "hidden", Limit: limit(t, "1/7h burst 3"), Hide: true}
	for _, cost := range []int64{3, 4} {
		c := serve(t, &service{}, limited(engineOf(t, hidden), grpclimit.Headers(grpclimit.Always),
			grpclimit.Cost(policy.Requests, func(context.Context, any) int64 { return cost })))
		var md metadata.MD
		call(t.Context(), c)
		got := call(t.Context(), c, grpc.Header(&md))
		_, quota := details(got)
		v := quota.GetViolations()
		if got.Code() != codes.ResourceExhausted || len(v) != 1 || v[0].QuotaId != "hidden" || v[0].QuotaValue != 0 || !strings.HasPrefix(v[0].Description, "the limit: ") ||
			strings.Contains(v[0].Description, "3") && cost == 4 || len(md["ratelimit-policy"]) > 0 {
			t.Errorf("%v, %v, %v", got, v, md)
		}
	}
}
