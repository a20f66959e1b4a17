package spillgate

type window struct{}

func newWindow(Limit) (*window, error) { return &window{}, nil }

func (m *Meter) takeQueue(s State, now Instant, q Ask, d Decision) (State, Decision)   { return s, d }
func (m *Meter) takeFixed(s State, now Instant, q Ask, d Decision) (State, Decision)   { return s, d }
func (m *Meter) takeSliding(s State, now Instant, q Ask, d Decision) (State, Decision) { return s, d }
func (m *Meter) settleFixed(s State, now, taken Instant, delta int64) State            { return s }
func (m *Meter) settleSliding(s State, now, taken Instant, delta int64) State          { return s }
func (m *Meter) adoptFixed(s State, o *Meter, now Instant) State                       { return s }
func (m *Meter) adoptSliding(s State, o *Meter, now Instant) State                     { return s }
func (m *Meter) slidingIsNew(s State, now Instant) bool                                { return false }
