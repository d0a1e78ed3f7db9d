// A page that is patched, not rebuilt: the focus, an open <details> and a half-read line stay where they are.
// Text only ever becomes a text node, so a name can never become markup.

/** A node to be: h("p", { class: "lead", onclick: f }, "text", child, condition && other). `key` tells siblings apart. */
export function h(tag, props, ...children) {
  const { key, ...rest } = props ?? {};
  return {
    tag,
    key,
    props: rest,
    children
  };
}

const identity = Symbol('identity');
const state = Symbol('props');

function same(node, wanted) {
  return typeof wanted === 'object'
    ? node[identity] === `${wanted.tag} ${wanted.key ?? ''}`
    : node.nodeType === Node.TEXT_NODE;
}

function make(wanted) {
  if (typeof wanted !== 'object') {
    return document.createTextNode(String(wanted));
  }
  const element = document.createElement(wanted.tag);
  element[identity] = `${wanted.tag} ${wanted.key ?? ''}`;
  element[state] = {};
  return element;
}

function setProps(element, props) {
  const before = element[state];
  for (const name of Object.keys(before)) {
    if (!(name in props)) {
      setProp(element, name, null);
    }
  }
  for (const [name, value] of Object.entries(props)) {
    if (before[name] !== value) {
      setProp(element, name, value);
    }
  }
  element[state] = props;
}

function setProp(element, name, value) {
  if (name.startsWith('on')) {
    element[name] = value;
  } else if (name === 'style') {
    // by property: a page may forbid style attributes (Content-Security-Policy)
    element.style.cssText = '';
    Object.assign(element.style, value ?? {});
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? '' : String(value));
  }
}

/** Make the children of `parent` be `children`. Nodes that match by tag and key are kept, and moved only if their order changed; nothing, null and false are left out. */
export function patch(parent, ...wished) {
  const children = wished
    .flat(Infinity)
    .filter(child => child !== null && child !== undefined && child !== false && child !== '');
  const old = [...parent.childNodes];
  const nodes = children.map(wanted => {
    const found = old.findIndex(node => same(node, wanted));
    return found < 0 ? make(wanted) : old.splice(found, 1)[0];
  });
  for (const node of old) {
    node.remove();
  }
  let next = parent.firstChild;
  nodes.forEach((node, index) => {
    const wanted = children[index];
    if (node === next) {
      next = next.nextSibling;
    } else {
      parent.insertBefore(node, next);
    }
    if (typeof wanted === 'object') {
      setProps(node, wanted.props);
      patch(node, wanted.children);
    } else if (node.data !== String(wanted)) {
      node.data = String(wanted);
    }
  });
}
