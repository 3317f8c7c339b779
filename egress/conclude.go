package egress

// byDefault reports whether the flow is let out where no rule speaks: because
// the default is "public", or because [hosts] maps the name and no rule narrows
// that. reason says which.
func (j *judgement) byDefault() (reason Reason, ok bool) {
	if j.f.Mapped {
		return ReasonHosts, !j.mapping.ruled
	}
	return ReasonDefaultPublic, j.e.public && j.class == ClassPublic && !j.dns
}

// granted is the verdict of the default.
func (j *judgement) granted(a Action, reason Reason) Verdict {
	v := j.verdict(a, reason, nil)
	if j.f.Mapped {
		v.Rule = j.mapping.rule
	}
	return v
}

// denyClosest is a denial by the default, with the reason that helps most.
func (j *judgement) denyClosest() Verdict {
	switch {
	case j.closestMiss != ReasonNone:
		return j.deny(j.closestMiss, j.closestRule)
	case j.dns && (j.e.public || j.port == dotPort):
		return j.deny(ReasonEncryptedDNS, nil)
	case j.f.Stage != StageConnect && !j.pinned && !j.f.Name.IsZero() && j.e.allow.names.has(j.f.Name):
		return j.deny(ReasonNotPinned, nil) // the name is allowed, but not here
	}
	return j.deny(ReasonNoRule, nil)
}

// concludeDatagram ends the judgement of UDP and ICMP, where no name is ever
// read.
func (j *judgement) concludeDatagram() Verdict {
	if j.relay != nil {
		return j.verdict(Allow, ReasonRule, j.relay)
	}
	reason, ok := j.byDefault()
	switch {
	case !ok:
		return j.denyClosest()
	case j.f.Proto == UDP && (j.closestMiss == ReasonQUIC || j.port == httpsPort && j.looksInside()):
		return j.deny(ReasonQUIC, j.closestRule)
	}
	return j.granted(Allow, reason)
}

// looksInside reports whether the policy wants to see names or requests on this
// port even where the default lets the flow out.
func (j *judgement) looksInside() bool {
	return j.namesMatter() || j.e.inspectAll && j.port == httpsPort || j.f.Proto == TCP && j.e.watch != nil
}

// concludeConnect ends the judgement of a connection of which nothing was read.
func (j *judgement) concludeConnect() Verdict {
	reason, open := j.byDefault()
	switch {
	case j.relay != nil && j.mustName == nil && j.mustInspect == nil && j.secret == nil:
		return j.verdict(Allow, ReasonRule, j.relay)
	case j.relay == nil && j.peek == nil && j.inspect == nil && !open:
		return j.denyClosest()
	case j.inspect != nil && !j.mixed && j.relay == nil && j.peek == nil && !open:
		return j.verdict(Inspect, ReasonNeedsRequest, j.inspect)
	}
	for _, r := range [...]*rule{j.secret, j.inspect, j.peek, j.relay} {
		if r != nil {
			return j.verdict(Peek, ReasonNeedsName, r)
		}
	}
	if j.mustName != nil || j.mustInspect != nil || j.looksInside() {
		return j.granted(Peek, ReasonNeedsName)
	}
	return j.granted(Allow, reason)
}

// concludeName ends the judgement of a connection whose ClientHello or request
// head was read.
func (j *judgement) concludeName() Verdict {
	reason, open := j.byDefault()
	switch {
	case j.relay == nil && j.inspect == nil && !open:
		return j.denyClosest()
	case j.mustInspect != nil && j.inspectable():
		return j.verdict(Inspect, ReasonNeedsRequest, j.mustInspect)
	case j.mustInspect != nil:
		return j.deny(ReasonDenyRule, j.mustInspect)
	case j.secret != nil:
		return j.verdict(Inspect, ReasonNeedsRequest, j.secret)
	case j.relay != nil:
		return j.verdict(Allow, ReasonRule, j.relay)
	case j.inspect != nil:
		return j.verdict(Inspect, ReasonNeedsRequest, j.inspect)
	}
	return j.concludeNameByDefault(reason)
}

// concludeNameByDefault ends the judgement where only the default speaks. Where
// deny rules go by name, a name that can't be seen, or that may change with the
// next request, isn't let out.
func (j *judgement) concludeNameByDefault(reason Reason) Verdict {
	f := j.f
	watched := j.namesMatter() || j.e.watch != nil
	switch {
	case f.App == AppTLS && f.ECH && watched:
		return j.deny(ReasonECH, nil)
	case f.App == AppSilent && j.e.watch != nil: // it may say any name once it is relayed
		return j.deny(ReasonNoName, nil)
	case f.Unclear && (watched || j.e.inspectAll):
		return j.deny(ReasonNoName, nil)
	case f.App == AppTLS && j.unpinnedBypass(f.Name):
		return j.deny(ReasonNotPinned, nil)
	case f.App == AppTLS && j.inspects(f.Name), f.App == AppHTTP && watched:
		if j.inspectable() {
			return j.granted(Inspect, ReasonNeedsRequest)
		}
		if f.ECH {
			return j.deny(ReasonECH, nil)
		}
		if f.Name.IsZero() {
			return j.deny(ReasonNoName, nil)
		}
		return j.deny(ReasonNotPinned, nil)
	}
	return j.granted(Allow, reason)
}

// concludeRequest ends the judgement of one request of an inspected connection.
func (j *judgement) concludeRequest() Verdict {
	if !j.inspectable() {
		switch {
		case j.f.Name.IsZero():
			return j.deny(ReasonNoName, nil)
		case j.pinned:
			return j.deny(ReasonInspectionOff, nil)
		}
		return j.deny(ReasonNotPinned, nil)
	}
	if j.relay != nil {
		return j.verdict(Allow, ReasonRule, j.relay)
	}
	if reason, open := j.byDefault(); open {
		return j.granted(Allow, reason)
	}
	return j.denyClosest()
}
