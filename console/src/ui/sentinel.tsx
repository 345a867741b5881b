import { useEffect, useRef } from 'preact/hooks';

/** Calls `onSeen` when the end of the list is close to the visible part. */
export function Sentinel({ onSeen }: { onSeen: () => void }) {
  const at = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => { if (entry?.isIntersecting) onSeen(); }, { rootMargin: '600px' });
    if (at.current) observer.observe(at.current);
    return () => observer.disconnect();
  }, []);
  return <div ref={at} class="sentinel" />;
}
