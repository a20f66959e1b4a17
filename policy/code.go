package policy

// codes are the canonical codes of gRPC, as text.
var codes = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// CodeName returns the name of a code of gRPC as rules spell it: "UNAUTHENTICATED"
// of 16. Numbers above that are "UNKNOWN".
func CodeName(code uint32) string {
	if int64(code) >= int64(len(codes)) {
		code = 2
	}
	return codes[code]
}

// Code notes the code of gRPC with which the request ends, where the front does
// not see it in the status: that of a call over HTTP stands in a trailer or in the
// body. Rules that count failures then count it if either is one of theirs. The
// last word before the end holds.
func (v *Verdict) Code(code uint32) {
	if v != nil {
		v.code = uint8(min(code, uint32(len(codes))) + 1)
	}
}

// failed reports whether a request that ended so is a failure of r.
func (v *Verdict) failed(r *Rule, outcome string) bool {
	return r.failed(outcome) || v.code > 0 && r.failed(CodeName(uint32(v.code-1)))
}
